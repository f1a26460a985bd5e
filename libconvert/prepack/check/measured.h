#pragma once

// What `check` measures by reading data, as the report of a part holds it (measure/measurements.h).

#include <cstdint>
#include <optional>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/check/plain_statistics.h"
#include "prepack/formats/finding.h"
#include "prepack/measure/measurements.h"
#include "prepack/measure/module_statistics.h"

namespace prepack {

// All that is known of one quantized module when all of it was read.
struct ModuleMeasurement {
  Status error;                                // what its reader met first
  std::vector<Finding> findings;               // besides
  std::optional<ModuleStatistics> statistics;  // none: not readable
  std::vector<float> energies;                 // of the input channels, of modules with siblings
  std::optional<double> sqnr_db;               // against the baseline
};

// A tensor that is not quantized.
struct PlainMeasurement {
  uint64_t not_finite = 0;     // values
  uint64_t first_offset = 0;   // of the first of them in the tensor, in bytes
  PlainStatistics statistics;  // only of tensors that are judged by them
};

// How many values of a tensor differ from the baseline's.
struct DifferentValues {
  uint64_t count = 0;
};

}  // namespace prepack
