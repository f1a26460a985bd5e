#pragma once

// Modules that runtimes run as one and that are packed as one: q, k and v as qkv_proj, gate and up
// as gate_up_proj (formats/model_parts.h), and all experts of a mixture as two stacks. The runtime
// can then run what it maps.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"

namespace prepack {

struct FusedModules {
  // Each of several modules of the model (members()), which must live longer.
  std::vector<std::unique_ptr<QuantizedLinear>> modules;
  // Name of what could not be fused → why.
  std::map<std::string, std::string> apart;
};

// All sets that belong together according to the checkpoint: siblings, if those are wanted, and, if
// `stack_experts`, the experts of a mixture, gate and up as one stack, down as another. Errors come
// from reading the source.
Result<FusedModules> FuseSiblings(const Checkpoint& checkpoint, const QuantizedModel& model,
                                  bool stack_experts, bool siblings = true,
                                  bool for_values = false);

}  // namespace prepack
