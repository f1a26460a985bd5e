#ifndef PREPACK_VERIFY_INTEGRITY_H_
#define PREPACK_VERIFY_INTEGRITY_H_

// Which files of a packed folder loaders read. transformers and vLLM take "model.safetensors" if it
// exists, otherwise the shards that "model.safetensors.index.json" names. vLLM also lists the
// folder for more files, and takes only "consolidated*.safetensors" if it takes the model for one
// of Mistral's. No two loaders may end up with different tensors.

#include <map>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/manifest.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Names of the manifest's .safetensors files that a loader would pass over, or take in the place of
// others, ascending: all but "model.safetensors" alone without an index, or
// "model-00001-of-0000N.safetensors" to the last of them with one.
std::vector<std::string> FilesNotLoaded(const Manifest& manifest);

// One file of a packed folder against the manifest.

// A tensor of the output and what it belongs to.
struct OwnedTensor {
  const TensorRecord* tensor = nullptr;
  std::string module;  // empty: it passed through
  std::string owner;   // for messages: "module a.b: part weight", or "tensor a.b"
};

// File → the tensors that the manifest says it holds. The manifest must outlive it.
using TensorsByFile = std::map<std::string, std::vector<OwnedTensor>>;
TensorsByFile GroupByFile(const Manifest& manifest);

// Is a file of the folder a shard of weights, by its name?
bool IsShard(const std::string& name);

// Checks size and hash of a file, and the hashes of all tensors in it; of a shard, the header
// against the manifest, too. Adds a problem for each tensor that is damaged; when the file is
// missing or its header is damaged, one for the file and one for each module that it holds a part
// of. With a sample, of a shard only the parts of its modules are hashed. Fails only when it cannot
// be read at all.
Status CheckFile(const PackedFolder& folder, const std::string& name, const FileRecord& record,
                 const std::vector<OwnedTensor>& tensors, const ModuleSample* sample,
                 Progress& progress, std::vector<Problem>& problems);

// Are the bytes of the tensor hashed with that sample?
inline bool IsHashed(const OwnedTensor& owned, const ModuleSample* sample) {
  return sample == nullptr || sample->contains(owned.module);
}

// Level 1: is the folder what was written? Sizes and hashes of all files and of all tensors in
// them, from one pass; headers against the manifest; packing fingerprints recomputed with today's
// code. With a sample, the bytes of shards are hashed only where they are parts of its modules, and
// notes say what was not. Sets the states of the modules in `figures`. Fails only when a check
// cannot be carried out at all.
Result<LevelResult> CheckIntegrity(const PackedFolder& folder, const ModuleSample* sample,
                                   unsigned threads, Progress& progress, ModuleFigures& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_INTEGRITY_H_
