#ifndef PREPACK_CONVERT_FUSED_MODULES_H_
#define PREPACK_CONVERT_FUSED_MODULES_H_

// Modules that runtimes run as one, to be packed as one: q, k and v as qkv_proj, gate and up as
// gate_up_proj (formats/fused_siblings.h). What the runtime then maps is what it runs.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/checkpoint.h"
#include "formats/format.h"

namespace prepack {

struct FusedModules {
  // Each of several modules of the model (members()), which must live longer.
  std::vector<std::unique_ptr<QuantizedLinear>> modules;
  // Name of what could not be fused → why.
  std::map<std::string, std::string> apart;
};

// All that go together by what the checkpoint says of them. Experts are left alone: runtimes put
// them together in ways of their own. An error is one of reading the source.
Result<FusedModules> FuseSiblings(const Checkpoint& checkpoint, const QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_CONVERT_FUSED_MODULES_H_
