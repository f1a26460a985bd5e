#ifndef PREPACK_INSPECT_MODULE_NUMBERS_H_
#define PREPACK_INSPECT_MODULE_NUMBERS_H_

// A summary of the numbers of one module, in a checkpoint or a packed folder: all of them are read,
// some output channels at a time.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "prepack/check/module_statistics.h"
#include "prepack/inspect/opened_folder.h"

namespace prepack {

// Each scale once, also where several output channels share it.
struct ScaleNumbers {
  uint64_t count = 0;
  uint64_t zero = 0;
  uint64_t negative = 0;
  float min = 0;
  float median = 0;  // of an even number: the lower of the two in the middle
  float max = 0;
};

struct ModuleNumbers {
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  bool reordered = false;  // groups are formed over reordered input channels
  float min_weight = 0;    // decoded
  float max_weight = 0;
  // How often each code occurs; none of bf16, which has no codes.
  std::optional<std::array<uint64_t, 256>> codes = {};
  std::optional<ScaleNumbers> scales = {};  // none of bf16
  // How often each occurs, one per output channel and group; none of symmetric schemes.
  std::optional<std::array<uint64_t, 256>> zero_points = {};

  uint64_t groups() const { return CeilDiv(k, scheme.group_size); }
};

// The errors of FindShown and of reading.
Result<ModuleNumbers> MeasureModule(const OpenedFolder& folder, std::string_view module);

}  // namespace prepack

#endif  // PREPACK_INSPECT_MODULE_NUMBERS_H_
