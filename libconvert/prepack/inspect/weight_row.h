#ifndef PREPACK_INSPECT_WEIGHT_ROW_H_
#define PREPACK_INSPECT_WEIGHT_ROW_H_

// Output channels [n0, n0 + rows) of a packed module in the canonical layout, wherever they begin:
// layouts unpack whole strips, and the rows that nobody asked for are cut off.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "prepack/base/status.h"
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

}  // namespace prepack

#endif  // PREPACK_INSPECT_WEIGHT_ROW_H_
