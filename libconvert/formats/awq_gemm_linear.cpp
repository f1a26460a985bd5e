#include <algorithm>
#include <array>
#include <vector>

#include "base/checked.h"
#include "formats/awq_linear.h"
#include "formats/column_reader.h"
#include "formats/reader_isa.h"
#include "kernels/awq_gemm.h"

namespace prepack {
namespace {

constexpr uint64_t kWordBytes = 4;

// qweight I32 [K, N/8], qzeros I32 [G, N/8], scales [G, N]. The order of nibbles is in
// kernels/awq_gemm.h.
class AwqGemmLinear final : public AwqLinear {
 public:
  AwqGemmLinear(const Checkpoint& checkpoint, const AwqModuleParts& parts)
      : AwqLinear(checkpoint, parts), isa_(ReaderIsa()) {}

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;

 private:
  uint64_t WordsPerRow() const { return n_ / kAwqCodesPerWord; }

  Isa isa_;
};

Status AwqGemmLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  const NibbleTranspose& transpose = NibbleTransposeFor(isa_);
  const uint64_t first_word = range.n0 / kAwqCodesPerWord;
  const uint64_t words = CeilDiv(range.n0 + range.rows, kAwqCodesPerWord) - first_word;
  const size_t row_bytes = PanelRowBytes(scheme_.code, range.cols);
  ColumnReader reader(checkpoint(), *tensors().qweight,
                      {.row_bytes = WordsPerRow() * kWordBytes,
                       .first = first_word * kWordBytes,
                       .count = words * kWordBytes},
                      std::min<uint64_t>(range.cols, kAwqTileCols));
  for (uint64_t col = 0; col < range.cols; col += reader.rows()) {
    const uint64_t cols = std::min(reader.rows(), range.cols - col);
    status = reader.Read(range.k0 + col, cols);
    if (!status.ok()) return status;
    for (uint64_t word = 0; word < words; word += 2) {
      AwqTileRows rows{};
      for (uint64_t i = 0; i < rows.size(); ++i) {
        const uint64_t n = (first_word + word) * kAwqCodesPerWord + i;
        if (n < range.n0 || n - range.n0 >= range.rows) continue;
        rows[i] = reinterpret_cast<uint8_t*>(out.data()) + (n - range.n0) * row_bytes + col / 2;
      }
      UnpackAwqTile(transpose, reader.data() + word * kWordBytes, reader.stride(),
                    std::min<uint64_t>(2, words - word), cols, rows);
    }
  }
  return {};
}

Status AwqGemmLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok()) return status;
  status = ReadFloatColumns(checkpoint(), *tensors().scales, n_, groups(), n0, rows, out);
  return status.ok() ? CheckScales(*tensors().scales, n0, rows, out) : status;
}

Status AwqGemmLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok() || out.empty()) return status;
  if (tensors().qzeros == nullptr) {
    std::ranges::fill(out, ZeroOfSymmetric(scheme_));
    return {};
  }
  const uint64_t first_word = n0 / kAwqCodesPerWord;
  const uint64_t words = CeilDiv(n0 + rows, kAwqCodesPerWord) - first_word;
  std::vector<std::byte> stored(words * kWordBytes);
  for (uint64_t g = 0; g < groups(); ++g) {
    status =
        checkpoint().Read(*tensors().qzeros, (g * WordsPerRow() + first_word) * kWordBytes, stored);
    if (!status.ok()) return status;
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t n = n0 + row;
      const unsigned nibble = AwqNibble(static_cast<unsigned>(n % kAwqCodesPerWord));
      const auto byte = std::to_integer<unsigned>(
          stored[(n / kAwqCodesPerWord - first_word) * kWordBytes + nibble / 2]);
      out[row * groups() + g] = static_cast<uint8_t>(byte >> (4 * (nibble % 2)) & 15U);
    }
  }
  return CheckSymmetric(n0, out);
}

}  // namespace

std::unique_ptr<QuantizedLinear> MakeAwqGemmLinear(const Checkpoint& checkpoint,
                                                   const AwqModuleParts& parts) {
  return std::make_unique<AwqGemmLinear>(checkpoint, parts);
}

}  // namespace prepack
