#pragma once

// Output channels [n0, n0 + rows) of a packed module in the canonical layout, wherever they begin:
// layouts unpack whole strips, and the rows that nobody asked for are cut off.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/inspect/opened_folder.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/packed/folder.h"

namespace prepack {

// [rows, K] as a panel, input channels as the kernel counts them.
Status ReadPackedCodes(const PackedModule& packed, uint64_t n0, uint64_t rows,
                       std::vector<std::byte>& codes);
// [rows, G]; ones where the layout keeps no scales.
Status ReadPackedScales(const PackedModule& packed, uint64_t n0, uint64_t rows,
                        std::vector<float>& scales);
Status ReadPackedZeroPoints(const PackedModule& packed, uint64_t n0, uint64_t rows,
                            std::vector<uint8_t>& zero_points);

// One output channel of a module, in the order of the checkpoint's input channels: as the source
// has it, or out of a packed folder. For looking at single numbers.

struct WeightRow {
  CodeType code = CodeType::kU4;
  std::vector<uint16_t> codes;       // [K], their bits as the canonical layout has them
  std::vector<float> values;         // [K], decoded: (code − zero point) · scale
  std::vector<float> scales;         // [G]
  std::vector<uint8_t> zero_points;  // [G]
  std::vector<uint64_t> positions;   // [K]: where a channel comes in k_order
  uint64_t group_size = 1;

  uint64_t GroupOf(uint64_t k) const { return positions[k] / group_size; }
};

Result<WeightRow> ReadWeightRow(const QuantizedLinear& linear, uint64_t n);
Result<WeightRow> ReadWeightRow(const PackedModule& packed, uint64_t n);

// k_order of a packed module; empty if it has none. kMalformed if it is not a permutation.
Result<std::vector<uint32_t>> ReadInputOrder(const PackedModule& packed);

// A code as people count it: signed codes below 0, FP8 and BF16 as their bits.
int64_t CodeNumber(CodeType code, uint16_t bits);

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
