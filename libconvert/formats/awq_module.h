#ifndef PREPACK_FORMATS_AWQ_MODULE_H_
#define PREPACK_FORMATS_AWQ_MODULE_H_

// Describes one module that is stored in one of AWQ's layouts, whichever format declares it: checks
// its tensors against each other and against the settings, from headers alone.

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "canonical/quantized_linear.h"
#include "formats/awq_layout.h"
#include "formats/finding_tally.h"
#include "formats/module_tensors.h"

namespace prepack {

// What a config says of a module.
struct AwqSettings {
  std::string where;  // "config.json: quantization_config", for errors
  uint32_t bits = 4;
  int64_t group_size = 128;  // positive, or -1: K
  bool zero_point = true;    // false: every zero point is 8, whether stored or not
  std::string version;       // the layout by name, in lower case; empty: the config names none
};

// `module` has a qweight. What is sound but not read (other widths, Marlin's tiles, stacked
// experts) is kUnsupported, tensors that contradict each other or the settings are kMalformed. A
// version that names another layout than the tensors have is a finding. The result refers to the
// checkpoint.
Result<std::unique_ptr<QuantizedLinear>> DescribeAwqModule(const Checkpoint& checkpoint,
                                                           const ModuleTensors& module,
                                                           const AwqSettings& settings,
                                                           FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_AWQ_MODULE_H_
