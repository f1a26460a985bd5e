#ifndef PREPACK_CHECK_MODEL_LAYOUT_H_
#define PREPACK_CHECK_MODEL_LAYOUT_H_

// The parts of module names, and whether decoder layers 0 … num_hidden_layers − 1 are all there.

#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"

namespace prepack {

// Layers beyond num_hidden_layers are legal: they predict further tokens. Appends to `findings`.
void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings);

}  // namespace prepack

#endif  // PREPACK_CHECK_MODEL_LAYOUT_H_
