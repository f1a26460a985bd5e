#ifndef PREPACK_INSPECT_SHOWN_MODULE_H_
#define PREPACK_INSPECT_SHOWN_MODULE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "check/module_statistics.h"
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

  const Scheme& scheme() const {
    return linear != nullptr ? linear->scheme() : packed->request().scheme;
  }
  DType stored_scale_dtype() const {
    return linear != nullptr ? linear->stored_scale_dtype() : packed->request().stored_scale_dtype;
  }
  // Are the input channels in another order than the checkpoint's when groups follow each other?
  bool reordered() const {
    return linear != nullptr ? linear->reordered() : packed->request().reordered;
  }
  uint64_t groups() const { return CeilDiv(k, scheme().group_size); }
  // Output channels to read at a time.
  uint64_t PanelRows() const;
  // The numbers of output channels [n0, n0 + rows); input channels are in k_order.
  Status ReadRows(uint64_t n0, uint64_t rows, StatisticsBuffers& numbers) const;
  Status ReadScales(uint64_t n0, uint64_t rows, std::vector<float>& scales) const;
  Result<WeightRow> Row(uint64_t row) const {
    return linear != nullptr ? ReadWeightRow(*linear, row) : ReadWeightRow(*packed, first + row);
  }
};

// The errors of FindSourceModule and FindPackedModule, and of PackedModule::Open. The folder must
// live longer.
Result<ShownModule> FindShown(const OpenedFolder& folder, std::string_view module);

}  // namespace prepack

#endif  // PREPACK_INSPECT_SHOWN_MODULE_H_
