#pragma once

// Some modules of a checkpoint as a checkpoint of their own, in a folder that is gone at the end:
// so that what is measured is packed by the code that packs models, from the same weights.

#include <filesystem>
#include <span>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// Writes the modules' tensors, biases included, and the configs of the checkpoint into the new
// folder `to`.
Status WriteSample(const Checkpoint& checkpoint, std::span<const QuantizedLinear* const> modules,
                   const std::filesystem::path& to);

}  // namespace prepack
