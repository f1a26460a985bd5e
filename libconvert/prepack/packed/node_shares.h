#pragma once

// A runtime that computes every expert on all NUMA nodes of a machine has the weights of each node
// apart: of gate and up a share of the output channels, of down the same share of its input
// channels. Shares are modules of their own:
//
//     EXPERTS.3.up_proj  →  EXPERTS.3.up_proj.numa.0, EXPERTS.3.up_proj.numa.1, …

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/format.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/manifest.h"

namespace prepack {

inline constexpr uint64_t kMostNodes = 64;

// Are they shares of the input channels? So for down_proj and w2.
bool IsCutByInputs(std::string_view module);

// The module for each node. kUsage where channels do not divide into multiples of 64 (of 128 with
// codes of 4 bits), which the kernels take at a time. The module must outlive them.
Result<std::vector<std::unique_ptr<QuantizedLinear>>> CutForNodes(const QuantizedLinear& whole,
                                                                  uint64_t nodes);

// For how many nodes the module that this is a share of was cut; 1 of any other module.
uint64_t NodesOf(const Manifest& manifest, std::string_view module);

// Puts shares into the model, in the place of what they are shares of, as the manifest has them. A
// module that cannot be cut stays as it is: the model then lacks its shares.
void CutAsPacked(const Manifest& manifest, QuantizedModel& model);

}  // namespace prepack
