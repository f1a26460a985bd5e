#ifndef PREPACK_INSPECT_WEIGHT_VALUES_H_
#define PREPACK_INSPECT_WEIGHT_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/check/module_statistics.h"
#include "prepack/inspect/opened_folder.h"
#include "prepack/inspect/weight_row.h"

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

// A few weights of a module, as numbers to look at.

enum class ValueKind : uint8_t {
  kDecoded,  // (code − zero point) · scale
  kCodes,    // as the canonical layout has them; signed ones below 0, FP8 and BF16 as their bits
  kBytes,    // the byte of the file that holds the first bit of the code
};

// "decoded", "codes" or "bytes".
std::string_view ValueKindName(ValueKind kind);

struct WeightValues {
  std::string module;
  std::string form;  // the format, or the layout
  PanelRange range;  // input channels are in the order of the checkpoint
  ValueKind kind = ValueKind::kDecoded;
  std::vector<double> values;  // [range.rows, range.cols]
};

// At most this many at a time, because people look at them.
inline constexpr uint64_t kMostValues = 1ULL << 20;

// Rows and columns that reach beyond the module are cut; kUsage when nothing is left, or too much.
Result<WeightValues> ReadWeightValues(const OpenedFolder& folder, std::string_view module,
                                      const PanelRange& range, ValueKind kind);

}  // namespace prepack

#endif  // PREPACK_INSPECT_WEIGHT_VALUES_H_
