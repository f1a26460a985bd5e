#ifndef PREPACK_CHECK_MODEL_LAYOUT_H_
#define PREPACK_CHECK_MODEL_LAYOUT_H_

// The parts of module names, and whether decoder layers 0 … num_hidden_layers − 1 are all there.

#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"

namespace prepack {

// The part after the last dot.
std::string_view LeafName(std::string_view name);
// The part before it: the module of a tensor.
std::string_view ModuleOf(std::string_view name);

// The name with every number between dots replaced by #: "model.layers.#.mlp.up_proj". Modules of
// the same role in other layers (and experts) have the same.
std::string RoleOf(std::string_view module);

// Layers beyond num_hidden_layers are legal: they predict further tokens. Appends to `findings`.
void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_MODEL_LAYOUT_H_
