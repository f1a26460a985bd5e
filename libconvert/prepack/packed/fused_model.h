#ifndef PREPACK_PACKED_FUSED_MODEL_H_
#define PREPACK_PACKED_FUSED_MODEL_H_

// What runtimes take a fused module for: its name says which layers it holds, and in which order
// their output channels follow each other. Nothing in a packed folder can change that.

#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/format.h"
#include "prepack/packed/manifest.h"

namespace prepack {

// Names of the layers that a runtime looks for in a module of this name, in its order: of
// "model.layers.0.self_attn.qkv_proj" q_proj, k_proj and v_proj of the same parent. Empty: runtimes
// know no layers under the name.
std::vector<std::string> LayersByName(std::string_view module);

// A packed folder may hold several modules of its source as one (`convert --fuse`). To be compared
// with it, the source is fused as runtimes expect it under the name of the whole, whatever the
// folder says of it.

// For each module of the manifest that the source has not, puts one in the place of those that its
// name stands for. Where the source lacks one of them, or they do not go together, it is left as it
// is: it then lacks the module. An error is one of reading the source.
Status FuseAsPacked(const Manifest& manifest, QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_PACKED_FUSED_MODEL_H_
