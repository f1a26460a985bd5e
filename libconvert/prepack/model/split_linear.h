#pragma once

// Experts that a checkpoint stores stacked, as modules of one expert and one projection each, which
// is how all other checkpoints have them:
//
//     EXPERTS.gate_up_proj.3  →  EXPERTS.3.gate_proj, EXPERTS.3.up_proj
//     EXPERTS.down_proj.3     →  EXPERTS.3.down_proj

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// Output channels first, first + step, first + 2 · step, … of a module.
struct ChannelChoice {
  uint64_t first = 0;
  uint64_t step = 1;
  uint64_t n = 0;
};

// Those channels as a module of that name. The whole must outlive it. A bias must be stacked, or
// the choice be all channels. kUnsupported when blocks of channels that share a scale would be cut.
Result<std::unique_ptr<QuantizedLinear>> ChooseChannels(const QuantizedLinear& whole,
                                                        std::string_view module,
                                                        ChannelChoice choice);

// What a module becomes: nothing if it is no expert that is stored stacked. `interleaved`: the
// channels of gate and up alternate; else those of gate come first. Errors are those of
// ChooseChannels.
Result<std::vector<std::unique_ptr<QuantizedLinear>>> SplitExpert(const QuantizedLinear& stored,
                                                                  bool interleaved);

}  // namespace prepack
