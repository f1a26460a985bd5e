#ifndef PREPACK_INSPECT_SHOWN_MODULE_H_
#define PREPACK_INSPECT_SHOWN_MODULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "inspect/opened_folder.h"
#include "inspect/weight_row.h"

namespace prepack {

// A quantized module of either kind of folder.
struct ShownModule {
  const QuantizedLinear* linear = nullptr;  // null when packed
  std::optional<PackedModule> packed = {};
  uint64_t first = 0;  // the output channel of the packed module that is its channel 0
  uint64_t n = 0;
  uint64_t k = 0;
  std::string form = {};

  Result<WeightRow> Row(uint64_t row) const {
    return linear != nullptr ? ReadWeightRow(*linear, row) : ReadWeightRow(*packed, first + row);
  }
};

// The errors of FindSourceModule and FindPackedModule, and of PackedModule::Open. The folder must
// live longer.
Result<ShownModule> FindShown(const OpenedFolder& folder, std::string_view module);

}  // namespace prepack

#endif  // PREPACK_INSPECT_SHOWN_MODULE_H_
