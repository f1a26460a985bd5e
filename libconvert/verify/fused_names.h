#ifndef PREPACK_VERIFY_FUSED_NAMES_H_
#define PREPACK_VERIFY_FUSED_NAMES_H_

// What runtimes take a module for that holds several layers: its name says which, and in which
// order their output channels follow each other. Nothing that a packed folder says can change it.

#include <string>
#include <string_view>
#include <vector>

namespace prepack {

// Names of the layers that a runtime looks for in a module of this name, in its order: of
// "model.layers.0.self_attn.qkv_proj" q_proj, k_proj and v_proj of the same parent. Empty: runtimes
// know no layers under the name.
std::vector<std::string> LayersByName(std::string_view module);

}  // namespace prepack

#endif  // PREPACK_VERIFY_FUSED_NAMES_H_
