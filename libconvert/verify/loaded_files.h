#ifndef PREPACK_VERIFY_LOADED_FILES_H_
#define PREPACK_VERIFY_LOADED_FILES_H_

// Which files of a packed folder loaders read. transformers and vLLM take "model.safetensors" where
// there is one, else the shards that "model.safetensors.index.json" names; vLLM lists the folder
// for more, and takes "consolidated*.safetensors" alone where it takes the model for Mistral's. No
// two of them may come to different tensors.

#include <string>
#include <vector>

#include "convert/manifest.h"

namespace prepack {

// Names of the manifest's .safetensors files that a loader would pass over, or take in the place of
// others, ascending: all but "model.safetensors" alone without an index, or
// "model-00001-of-0000N.safetensors" to the last of them with one.
std::vector<std::string> FilesNotLoaded(const Manifest& manifest);

}  // namespace prepack

#endif  // PREPACK_VERIFY_LOADED_FILES_H_
