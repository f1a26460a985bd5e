#include <vector>

#include "base/scratch.h"
#include "formats/awq_linear.h"
#include "kernels/awq_gemm.h"

namespace prepack {
namespace {

// qweight I32 [N, K/8], qzeros I32 [N, P/8], scales [N, P]; codes and zero points lie in their
// words in order, lowest bits first, which is how a panel holds codes: reading copies. Groups from
// G on are padding and must be zero.
class AwqGemvLinear final : public AwqLinear {
 public:
  AwqGemvLinear(const Checkpoint& checkpoint, const AwqModuleParts& parts)
      : AwqLinear(checkpoint, parts), padded_groups_(parts.tensors.scales->shape[1]) {}

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override;
  StoredBits WhereScale(uint64_t n, uint64_t g) const override;
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override;
  PanelRange CodesNear(uint64_t byte) const override;

 private:
  uint64_t padded_groups_;
};

Status AwqGemvLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok()) return status;
  const uint64_t stored = k_ / 2;
  const size_t wanted = PanelRowBytes(scheme_.code, range.cols);
  if (wanted == stored) return checkpoint().Read(*tensors().qweight, range.n0 * stored, out);
  for (uint64_t row = 0; row < range.rows; ++row) {
    status = checkpoint().Read(*tensors().qweight, (range.n0 + row) * stored + range.k0 / 2,
                               out.subspan(row * wanted, wanted));
    if (!status.ok()) return status;
  }
  return {};
}

Status AwqGemvLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok()) return status;
  Scratch<float> stored(rows * padded_groups_);
  status = ReadFloats(checkpoint(), *tensors().scales, n0 * padded_groups_, stored);
  if (!status.ok()) return status;
  for (uint64_t row = 0; row < rows; ++row) {
    const float* from = stored.data() + row * padded_groups_;
    for (uint64_t g = 0; g < padded_groups_; ++g) {
      if (g < groups()) {
        out[row * groups() + g] = from[g];
      } else if (from[g] != 0.0F) {
        return NotPadding(*tensors().scales, n0 + row, g);
      }
    }
  }
  return CheckScales(*tensors().scales, n0, rows, out);
}

Status AwqGemvLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok()) return status;
  const uint64_t row_bytes = padded_groups_ / kAwqCodesPerWord * 4;
  Scratch<std::byte> stored(rows * row_bytes);
  status = checkpoint().Read(*tensors().qzeros, n0 * row_bytes, stored);
  if (!status.ok()) return status;
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t g = 0; g < padded_groups_; ++g) {
      const auto byte = std::to_integer<unsigned>(stored[row * row_bytes + g / 2]);
      const unsigned zero_point = byte >> (4 * (g % 2)) & 15U;
      if (g < groups()) {
        out[row * groups() + g] = static_cast<uint8_t>(zero_point);
      } else if (zero_point != 0) {
        return NotPadding(*tensors().qzeros, n0 + row, g);
      }
    }
  }
  return CheckSymmetric(n0, out);
}

StoredBits AwqGemvLinear::WhereCode(uint64_t n, uint64_t k) const {
  return {{.tensor = tensors().qweight->name, .bit = 4 * (n * k_ + k), .bits = 4}};
}

StoredBits AwqGemvLinear::WhereScale(uint64_t n, uint64_t g) const {
  return WhereElement(*tensors().scales, n * padded_groups_ + g);
}

StoredBits AwqGemvLinear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  return {{.tensor = tensors().qzeros->name, .bit = 4 * (n * padded_groups_ + g), .bits = 4}};
}

PanelRange AwqGemvLinear::CodesNear(uint64_t byte) const {
  return {.n0 = byte / (k_ / 2), .rows = 1, .k0 = 0, .cols = k_};
}

}  // namespace

std::unique_ptr<QuantizedLinear> MakeAwqGemvLinear(const Checkpoint& checkpoint,
                                                   const AwqModuleParts& parts) {
  return std::make_unique<AwqGemvLinear>(checkpoint, parts);
}

}  // namespace prepack
