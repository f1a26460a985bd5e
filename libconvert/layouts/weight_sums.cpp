#include "layouts/weight_sums.h"

#include <algorithm>
#include <cstring>

#include "base/float_convert.h"
#include "canonical/panel_shape.h"
#include "kernels/row_sums.h"

namespace prepack {

Status SumSignedCodes(const QuantizedLinear& linear, Isa isa, uint64_t n0, uint64_t rows,
                      PageBuffer& panel, std::span<int32_t> sums) {
  const TileShape shape = StripShape(linear, {});
  std::ranges::fill(sums, 0);
  const PanelRange all{.n0 = n0, .rows = rows, .k0 = 0, .cols = linear.k()};
  return ForPanels(all, shape, [&](const PanelRange& range) -> Status {
    panel.resize(PanelBytes(CodeType::kS8, range));
    Status status = linear.ReadCodes(range, panel);
    if (!status.ok()) return status;
    SumRowsFor(isa)(reinterpret_cast<const int8_t*>(panel.data()), range.cols, range.rows,
                    range.cols, &sums[range.n0 - n0]);
    return {};
  });
}

void PackScaledSums(DType scale_value, std::span<const int32_t> sums, std::span<const float> scales,
                    std::span<std::byte> packed) {
  for (size_t row = 0; row < sums.size(); ++row) {
    const float sum = static_cast<float>(sums[row]) * RoundTo(scale_value, scales[row]);
    std::memcpy(&packed[row * sizeof sum], &sum, sizeof sum);
  }
}

}  // namespace prepack
