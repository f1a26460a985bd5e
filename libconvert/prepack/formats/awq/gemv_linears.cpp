#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/formats/awq/linear.h"
#include "prepack/formats/finding.h"
#include "prepack/kernels/awq.h"
#include "prepack/kernels/kernels.h"

namespace prepack::awq {
namespace {

// qweight I32 [N, K/8], qzeros I32 [N, P/8], scales [N, P]; codes and zero points lie in their
// words in order, lowest bits first, which is how a panel holds codes: reading copies. Groups from
// G on are padding and must be zero.
class AwqGemvLinear final : public Linear {
 public:
  AwqGemvLinear(const Checkpoint& checkpoint, const ModuleParts& parts)
      : Linear(checkpoint, parts), padded_groups_(parts.tensors.scales->shape[1]) {}

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
  PREPACK_TRY(CheckPanel(range, out.size()));
  const uint64_t stored = k_ / 2;
  const size_t wanted = PanelRowBytes(scheme_->code, range.cols);
  if (wanted == stored) return checkpoint().Read(*tensors().qweight, range.n0 * stored, out);
  for (uint64_t row = 0; row < range.rows; ++row) {
    PREPACK_TRY(checkpoint().Read(*tensors().qweight, (range.n0 + row) * stored + range.k0 / 2,
                                  out.subspan(row * wanted, wanted)));
  }
  return {};
}

Status AwqGemvLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  PREPACK_TRY(CheckRows(n0, rows, out.size()));
  Scratch<float> stored(rows * padded_groups_);
  PREPACK_TRY(ReadFloats(checkpoint(), *tensors().scales, n0 * padded_groups_, stored));
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
  PREPACK_TRY(CheckRows(n0, rows, out.size()));
  const uint64_t row_bytes = padded_groups_ / kAwqCodesPerWord * 4;
  Scratch<std::byte> stored(rows * row_bytes);
  PREPACK_TRY(checkpoint().Read(*tensors().qzeros, n0 * row_bytes, stored));
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

std::unique_ptr<QuantizedLinear> MakeGemvLinear(const Checkpoint& checkpoint,
                                                const ModuleParts& parts) {
  return std::make_unique<AwqGemvLinear>(checkpoint, parts);
}

namespace {

// A product −scale · z is rounded to 11 bits once, or twice when it was made from a scale that was
// not rounded itself: z is met within 15 · 2^-10. Twice that is still far from the next integer.
constexpr float kZeroPointTolerance = 1.0F / 32;

// qweight I16 [N/4, K], scales and qzeros [P, N]. How codes lie is in kernels/awq.h.
// Groups from G on are padding and must be zero.
class AwqGemvFastLinear final : public Linear {
 public:
  AwqGemvFastLinear(const Checkpoint& checkpoint, const ModuleParts& parts)
      : Linear(checkpoint, parts), padded_groups_(parts.tensors.scales->shape[0]) {}

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override;
  StoredBits WhereScale(uint64_t n, uint64_t g) const override;
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override;
  PanelRange CodesNear(uint64_t byte) const override;

 private:
  // Bytes of four rows, which lie together.
  uint64_t FourBytes() const { return k_ / kGemvFastCols * kGemvFastChunkBytes; }
  void Unpack(const uint8_t* stored, const PanelRange& range, std::span<std::byte> out) const;
  // Fills `out` [rows, G] from a tensor [P, N] and checks the padding.
  Status ReadPadded(const StoredTensor& tensor, uint64_t n0, uint64_t rows,
                    std::span<float> out) const;
  Status NotInteger(float scale, float product, uint64_t n, uint64_t group) const;

  uint64_t padded_groups_;
};

Status AwqGemvFastLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  const uint64_t first_four = range.n0 / kGemvFastRows;
  const uint64_t fours = CeilDiv(range.n0 + range.rows, kGemvFastRows) - first_four;
  const uint64_t four_bytes = FourBytes();
  return checkpoint().Visit(*tensors().qweight, first_four * four_bytes, fours * four_bytes,
                            [&](const std::byte* stored) { Unpack(U8(stored), range, out); });
}

// `stored`: whole fours of rows, from that of the panel's first row on.
void AwqGemvFastLinear::Unpack(const uint8_t* stored, const PanelRange& range,
                               std::span<std::byte> out) const {
  const uint64_t first_chunk = range.k0 / kGemvFastCols;
  const uint64_t chunks = CeilDiv(range.k0 + range.cols, kGemvFastCols) - first_chunk;
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  // A panel that begins or ends inside a chunk is cut out of whole ones.
  const bool whole = row_bytes == chunks * kGemvFastRowBytes;
  const size_t skipped = (range.k0 - first_chunk * kGemvFastCols) / 2;
  Scratch<uint8_t> cut(whole ? 0 : chunks * kGemvFastRowBytes);
  uint8_t* to = U8(out.data());
  for (uint64_t row = range.n0 % kGemvFastRows; row < range.n0 % kGemvFastRows + range.rows;
       ++row) {
    const uint8_t* from = stored + row / kGemvFastRows * FourBytes() +
                          first_chunk * kGemvFastChunkBytes +
                          row % kGemvFastRows * kGemvFastRowBytes;
    Kernels().unpack_gemv_fast(from, chunks, whole ? to : cut.data());
    if (!whole) std::memcpy(to, cut.data() + skipped, row_bytes);
    to += row_bytes;
  }
}

Status AwqGemvFastLinear::ReadPadded(const StoredTensor& tensor, uint64_t n0, uint64_t rows,
                                     std::span<float> out) const {
  Scratch<float> padded(rows * padded_groups_);
  PREPACK_TRY(ReadFloatColumns(checkpoint(), tensor, n_, padded_groups_, n0, rows, padded));
  for (uint64_t row = 0; row < rows; ++row) {
    std::copy_n(&padded[row * padded_groups_], groups(), &out[row * groups()]);
  }
  for (uint64_t g = groups(); g < padded_groups_; ++g) {
    for (uint64_t row = 0; row < rows; ++row) {
      if (padded[row * padded_groups_ + g] != 0.0F) return NotPadding(tensor, n0 + row, g);
    }
  }
  return {};
}

Status AwqGemvFastLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  PREPACK_TRY(CheckRows(n0, rows, out.size()));
  PREPACK_TRY(ReadPadded(*tensors().scales, n0, rows, out));
  return CheckScales(*tensors().scales, n0, rows, out);
}

namespace {

// The zero point of a product −scale · z; nothing that is near an integer of 0 to 15 if it is none.
float ZeroPoint(float scale, float product) {
  // A scale of zero makes every weight zero, whatever z; that the product then is zero, too, is
  // checked below.
  return scale == 0.0F && product == 0.0F ? 0.0F : -product / scale;
}

}  // namespace

Status AwqGemvFastLinear::NotInteger(float scale, float product, uint64_t n, uint64_t group) const {
  return Unsupported(checkpoint().Where(*tensors().qzeros),
                     "an offset is not an integer zero point times the scale")
      .Found(fmt::format("offset {} with scale {}, a zero point of {}, at channel {}, group {}",
                         product, scale, ZeroPoint(scale, product), n, group))
      .Expected("−scale · z with z an integer of 0 to 15")
      .Hint("Quantize the model again with version \"gemm\", which stores integers")
      .Id(FindingId("awq-offset-not-integer"));
}

Status AwqGemvFastLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok()) return status;
  Scratch<float> scales(out.size());
  Scratch<float> products(out.size());
  status = ReadPadded(*tensors().scales, n0, rows, scales);
  if (status.ok()) status = ReadPadded(*tensors().qzeros, n0, rows, products);
  if (!status.ok()) return status;
  for (size_t i = 0; i < out.size(); ++i) {
    const float zero_point = ZeroPoint(scales[i], products[i]);
    // Neither holds for NaN.
    const bool in_range = zero_point >= -kZeroPointTolerance && zero_point <= 15.5F;
    const int nearest = in_range ? static_cast<int>(2 * zero_point + 1) / 2 : 0;
    const float distance = std::fabs(zero_point - static_cast<float>(nearest));
    if (!in_range || nearest > 15 || !(distance <= kZeroPointTolerance)) {
      return NotInteger(scales[i], products[i], n0 + i / groups(), i % groups());
    }
    out[i] = static_cast<uint8_t>(nearest);
  }
  return CheckSymmetric(n0, out);
}

StoredBits AwqGemvFastLinear::WhereCode(uint64_t n, uint64_t k) const {
  constexpr uint64_t kRunCols =
      kGemvFastCols / 2;  // 16-bit number r holds r, r + 8, r + 16, r + 24
  const uint64_t in_run = k % kRunCols;
  const uint64_t nibble = in_run % 8 * 4 + in_run / 8;
  const uint64_t byte = n / kGemvFastRows * FourBytes() + k / kGemvFastCols * kGemvFastChunkBytes +
                        n % kGemvFastRows * kGemvFastRowBytes +
                        k % kGemvFastCols / kRunCols * (kGemvFastRowBytes / 2);
  return {{.tensor = tensors().qweight->name, .bit = 8 * byte + 4 * nibble, .bits = 4}};
}

StoredBits AwqGemvFastLinear::WhereScale(uint64_t n, uint64_t g) const {
  return WhereElement(*tensors().scales, g * n_ + n);
}

// The product of scale and zero point.
StoredBits AwqGemvFastLinear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  return WhereElement(*tensors().qzeros, g * n_ + n);
}

PanelRange AwqGemvFastLinear::CodesNear(uint64_t byte) const {
  return {.n0 = byte / FourBytes() * kGemvFastRows, .rows = kGemvFastRows, .k0 = 0, .cols = k_};
}

}  // namespace

std::unique_ptr<QuantizedLinear> MakeGemvFastLinear(const Checkpoint& checkpoint,
                                                    const ModuleParts& parts) {
  return std::make_unique<AwqGemvFastLinear>(checkpoint, parts);
}

}  // namespace prepack::awq
