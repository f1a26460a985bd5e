#ifndef PREPACK_INSPECT_TARGET_USE_H_
#define PREPACK_INSPECT_TARGET_USE_H_

// What each target would make of a checkpoint: the plan of a conversion with no options, in
// figures.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "container/checkpoint.h"
#include "formats/format.h"

namespace prepack {

// Modules that stay as they are stored, for one reason.
struct LeftModules {
  std::string why;
  std::string first;  // of them
  size_t modules = 0;
};

struct TargetUse {
  std::string target;
  size_t modules = 0;                     // quantized ones, packed or not
  size_t packed = 0;                      // of them
  std::map<std::string, size_t> layouts;  // → modules
  std::vector<LeftModules> left;          // most modules first
  uint64_t module_bytes = 0;              // of the quantized modules in the output
  uint64_t weights = 0;                   // of the same
  uint64_t output_bytes = 0;              // of all tensors of the output

  double BitsPerWeight() const;
};

// In the order of the targets; none for a checkpoint without quantized modules. From headers only.
std::vector<TargetUse> UseOfTargets(const Checkpoint& checkpoint, const QuantizedModel& model);

}  // namespace prepack

#endif  // PREPACK_INSPECT_TARGET_USE_H_
