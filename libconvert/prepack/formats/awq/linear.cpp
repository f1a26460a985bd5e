#include "prepack/formats/awq/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/formats/finding.h"
#include "prepack/kernels/awq.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_columns.h"

namespace prepack::awq {

Linear::Linear(const Checkpoint& checkpoint, const ModuleParts& parts)
    : StoredLinear(checkpoint), tensors_(parts.tensors), is_signed_(parts.is_signed) {
  module_.BorrowFrom(parts.tensors.qweight->name, parts.module);
  scheme_ = parts.scheme;
  n_ = parts.n;
  k_ = parts.k;
  stored_scale_dtype_ = tensors_.scales->dtype;
  AddSource(*tensors_.qweight);
  AddSource(*tensors_.scales);
  if (tensors_.qzeros != nullptr) AddSource(*tensors_.qzeros);
  for (const StoredTensor* tensor : parts.side_tensors) AddSource(*tensor);
  SetRare({.input = parts.input});
}

Status Linear::CheckSymmetric(uint64_t n0, std::span<const uint8_t> zero_points) const {
  if (!scheme_->symmetric || zero_points.empty()) return {};
  const uint8_t symmetric = ZeroOfSymmetric(scheme());
  const auto odd = std::ranges::find_if(zero_points, [&](uint8_t z) { return z != symmetric; });
  if (odd == zero_points.end()) return {};
  const auto index = static_cast<uint64_t>(odd - zero_points.begin());
  const auto [low, high] = std::ranges::minmax(zero_points);
  const int offset = is_signed_ ? symmetric : 0;
  const int expected = symmetric - offset;
  return Malformed(
             checkpoint().Where(*tensors_.qzeros),
             fmt::format("the config says that zero points are symmetric, but they are not all {}",
                         expected))
      .Found(fmt::format("{} at channel {}, group {}; {} to {} in these rows", *odd - offset,
                         n0 + index / groups(), index % groups(), low - offset, high - offset))
      .Expected(fmt::format("{} throughout", expected))
      .Hint(is_signed_
                ? "Either the config or the tensor is wrong"
                : "If the zero points are right, correct the config (AWQ: zero_point true); vLLM "
                  "would ignore them and compute with 8")
      .Id(FindingId("zero-point-not-symmetric"));
}

Status Linear::NotPadding(const StoredTensor& tensor, uint64_t n, uint64_t group) const {
  return Malformed(checkpoint().Where(tensor), "the padding after the last group holds data")
      .Found(fmt::format("channel {}, group {}", n, group))
      .Expected(fmt::format("zeros from group {} on, with K = {} and groups of {}", groups(), k_,
                            scheme_->group_size))
      .Hint("The group size of the config may be wrong")
      .Id(FindingId("awq-padding"));
}

namespace {

// Two cache lines side by side; more would leave too few input channels for a panel.
constexpr uint64_t kWideRows = 512;
// What is unpacked at a time: whole cache lines of the file and of the output.
constexpr uint64_t kTileRows = 512;
constexpr uint64_t kTileCols = 128;

// Groups whose zero points are turned into columns at a time.
constexpr uint64_t kZeroGroups = 32;

// For each byte of a word, as it counts from 0: what its two nibbles are in the word's codes, a
// byte for each, in memory order. Or-ing those of all four gives the eight codes.
constexpr std::array<uint64_t, 256> SpreadByte(unsigned byte) {
  std::array<uint64_t, 256> spread = {};
  for (uint64_t value = 0; value < spread.size(); ++value) {
    spread[value] = (value & 15U) << (8 * AwqChannel(2 * byte)) |
                    (value >> 4) << (8 * AwqChannel(2 * byte + 1));
  }
  return spread;
}

// Little-endian words of eight nibbles as eight bytes each, in the order of the channels.
void SpreadWords(const uint8_t* words, uint64_t count, uint8_t* codes) {
  static constexpr std::array kSpread = {SpreadByte(0), SpreadByte(1), SpreadByte(2),
                                         SpreadByte(3)};
  for (uint64_t word = 0; word < count; ++word) {
    uint64_t spread = 0;
    for (size_t byte = 0; byte < kWideWordBytes; ++byte) {
      spread |= kSpread[byte][words[word * kWideWordBytes + byte]];
    }
    std::memcpy(codes + word * kAwqCodesPerWord, &spread, sizeof spread);
  }
}

// qweight I32 [K, N/8], qzeros I32 [G, N/8], scales [G, N]. The order of nibbles is in
// kernels/awq.h. Quark pads the last word where N is no multiple of 8.
class AwqGemmLinear final : public Linear {
 public:
  AwqGemmLinear(const Checkpoint& checkpoint, const ModuleParts& parts)
      : Linear(checkpoint, parts), in_order_(parts.in_order) {
    wide_rows_ = kWideRows;
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  bool HasColumns(const PanelRange& range) const override {
    return range.n0 % kAwqCodesPerWord == 0 && range.rows % kAwqCodesPerWord == 0;
  }
  Status ReadColumns(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override;
  StoredBits WhereScale(uint64_t n, uint64_t g) const override;
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override;
  PanelRange CodesNear(uint64_t byte) const override;

 private:
  uint64_t WordsPerRow() const { return CeilDiv(n_, kAwqCodesPerWord); }
  // Of two's complement, the high bit of each nibble becomes that of an unsigned code.
  void MakeUnsigned(std::span<std::byte> nibbles) const {
    if (!is_signed()) return;
    for (std::byte& byte : nibbles) byte ^= std::byte{0x88};
  }
  // Words in AWQ's order, whatever order they are stored in.
  void BringToAwqOrder(std::span<std::byte> words) const;
  Status VisitColumns(const PanelRange& range, ByteVisitor work) const;
  void CopyColumns(const uint8_t* columns, uint64_t cols, size_t bytes,
                   std::span<std::byte> out) const;
  void Unpack(const uint8_t* columns, const PanelRange& range, std::span<std::byte> out) const;
  void Join(const uint8_t* columns, size_t row_bytes, uint64_t cols, uint64_t channels,
            uint32_t* wide) const;
  void Deliver(const uint32_t* wide, uint64_t channels, uint64_t rows, uint64_t cols,
               std::byte* out, size_t row_bytes) const;
  StoredBits WhereNibble(const StoredTensor& tensor, uint64_t row, uint64_t n) const;

  bool in_order_;
};

void AwqGemmLinear::BringToAwqOrder(std::span<std::byte> words) const {
  if (!in_order_) return;
  for (size_t at = 0; at < words.size(); at += kWideWordBytes) {
    uint32_t word = 0;
    std::memcpy(&word, &words[at], sizeof word);
    word = AwqWordFromOrder(word);
    std::memcpy(&words[at], &word, sizeof word);
  }
}

// Calls `work` with the panel's part of the input channels' rows, from the word with its first
// channel on.
Status AwqGemmLinear::VisitColumns(const PanelRange& range, ByteVisitor work) const {
  const uint64_t first_word = range.n0 / kAwqCodesPerWord;
  const uint64_t words = CeilDiv(range.n0 + range.rows, kAwqCodesPerWord) - first_word;
  const uint64_t row_bytes = WordsPerRow() * kWideWordBytes;
  return checkpoint().VisitRuns(*tensors().qweight,
                                {.offset = range.k0 * row_bytes + first_word * kWideWordBytes,
                                 .run_bytes = words * kWideWordBytes,
                                 .stride = row_bytes,
                                 .runs = range.cols},
                                work);
}

Status AwqGemmLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  PREPACK_TRY(
      VisitColumns(range, [&](const std::byte* columns) { Unpack(U8(columns), range, out); }));
  MakeUnsigned(out);
  return {};
}

Status AwqGemmLinear::ReadColumns(const PanelRange& range, std::span<std::byte> out) const {
  if (!HasColumns(range)) return QuantizedLinear::ReadColumns(range, out);
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  const uint64_t row_bytes = WordsPerRow() * kWideWordBytes;
  PREPACK_TRY(VisitColumns(range, [&](const std::byte* columns) {
    if (!in_order_) {
      Kernels().order_awq_columns(U8(columns), row_bytes, range.cols, range.rows, U8(out.data()),
                                  ColumnBytes(range.rows));
      return;
    }
    for (uint64_t k = 0; k < range.cols; ++k) {
      std::copy_n(columns + k * row_bytes, ColumnBytes(range.rows),
                  out.data() + k * ColumnBytes(range.rows));
    }
  }));
  MakeUnsigned(out);
  return {};
}

// `columns`: as VisitColumns has them. Goes tile by tile, so that the words on their way stay in
// the L1 cache.
void AwqGemmLinear::Unpack(const uint8_t* columns, const PanelRange& range,
                           std::span<std::byte> out) const {
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  const size_t stride = WordsPerRow() * kWideWordBytes;
  Scratch<uint32_t> wide(kTileCols / kCodesPerWideWord * kTileRows);
  Scratch<std::byte> turned(in_order_ ? kTileCols * ColumnBytes(kTileRows) : 0);
  for (uint64_t col = 0; col < range.cols; col += kTileCols) {
    const uint64_t cols = std::min(kTileCols, range.cols - col);
    uint64_t skipped = range.n0 % kAwqCodesPerWord;  // channels of the tile's first word
    for (uint64_t row = 0; row < range.rows;) {
      const uint64_t rows = std::min(kTileRows - skipped, range.rows - row);
      const uint64_t words = CeilDiv(skipped + rows, kAwqCodesPerWord);
      const uint64_t word = (range.n0 + row) / kAwqCodesPerWord - range.n0 / kAwqCodesPerWord;
      const uint8_t* from = columns + col * stride + word * kWideWordBytes;
      if (in_order_) {
        CopyColumns(from, cols, words * kWideWordBytes, turned);
        Join(U8(turned.data()), words * kWideWordBytes, cols, words * kAwqCodesPerWord,
             wide.data());
      } else {
        Join(from, stride, cols, words * kAwqCodesPerWord, wide.data());
      }
      Deliver(wide.data() + skipped, words * kAwqCodesPerWord, rows, cols,
              out.data() + row * row_bytes + col / 2, row_bytes);
      row += rows;
      skipped = 0;
    }
  }
}

// Words of `cols` input channels side by side, in AWQ's order.
void AwqGemmLinear::CopyColumns(const uint8_t* columns, uint64_t cols, size_t bytes,
                                std::span<std::byte> out) const {
  for (uint64_t col = 0; col < cols; ++col) {
    std::memcpy(out.data() + col * bytes, columns + col * WordsPerRow() * kWideWordBytes, bytes);
  }
  BringToAwqOrder(out.first(cols * bytes));
}

// Columns as words by output channel; the last word is filled up with zeros.
void AwqGemmLinear::Join(const uint8_t* columns, size_t row_bytes, uint64_t cols, uint64_t channels,
                         uint32_t* wide) const {
  const KernelTable& kernels = Kernels();
  const uint64_t whole = cols / kCodesPerWideWord;
  kernels.join_awq_columns(columns, row_bytes, whole, channels, wide, channels);
  const uint64_t rest = cols % kCodesPerWideWord;
  if (rest == 0) return;
  const size_t used = ColumnBytes(channels);
  Scratch<uint8_t> filled(kCodesPerWideWord * used, 0);
  for (uint64_t i = 0; i < rest; ++i) {
    std::copy_n(columns + (whole * kCodesPerWideWord + i) * row_bytes, used,
                filled.data() + i * used);
  }
  kernels.join_awq_columns(filled.data(), used, 1, channels, wide + whole * channels, channels);
}

// Puts the codes of `cols` input channels into rows; `channels` words lie from one input channel's
// eight to the next.
void AwqGemmLinear::Deliver(const uint32_t* wide, uint64_t channels, uint64_t rows, uint64_t cols,
                            std::byte* out, size_t row_bytes) const {
  const uint64_t whole = cols / kCodesPerWideWord;
  TransposeUnits(kWideWordBytes)(reinterpret_cast<const std::byte*>(wide),
                                 channels * kWideWordBytes, whole, rows, out, row_bytes);
  const size_t rest_bytes = PanelRowBytes(scheme_->code, cols % kCodesPerWideWord);
  if (rest_bytes == 0) return;
  for (uint64_t row = 0; row < rows; ++row) {
    std::memcpy(out + row * row_bytes + whole * kWideWordBytes, wide + whole * channels + row,
                rest_bytes);
  }
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
    std::ranges::fill(out, ZeroOfSymmetric(scheme()));
    return {};
  }
  const uint64_t first_word = n0 / kAwqCodesPerWord;
  const uint64_t words = CeilDiv(n0 + rows, kAwqCodesPerWord) - first_word;
  const uint64_t width = words * kAwqCodesPerWord;
  Scratch<std::byte> stored(kZeroGroups * words * kWideWordBytes);
  Scratch<uint8_t> codes(kZeroGroups * width);
  for (uint64_t g0 = 0; g0 < groups(); g0 += kZeroGroups) {
    const uint64_t count = std::min(kZeroGroups, groups() - g0);
    const std::span some = std::span(stored).first(count * words * kWideWordBytes);
    status = checkpoint().ReadRuns(*tensors().qzeros,
                                   {.offset = (g0 * WordsPerRow() + first_word) * kWideWordBytes,
                                    .run_bytes = words * kWideWordBytes,
                                    .stride = WordsPerRow() * kWideWordBytes,
                                    .runs = count},
                                   some);
    if (!status.ok()) return status;
    BringToAwqOrder(some);
    MakeUnsigned(some);
    SpreadWords(U8(some.data()), count * words, codes.data());
    TransposeUnits(1)(std::as_bytes(std::span(codes)).subspan(n0 % kAwqCodesPerWord).data(), width,
                      count, rows, std::as_writable_bytes(out).subspan(g0).data(), groups());
  }
  return CheckSymmetric(n0, out);
}

// Codes and zero points alike: word [row, n/8].
StoredBits AwqGemmLinear::WhereNibble(const StoredTensor& tensor, uint64_t row, uint64_t n) const {
  const auto channel = static_cast<unsigned>(n % kAwqCodesPerWord);
  const uint64_t nibble = in_order_ ? channel : AwqNibble(channel);
  return {{.tensor = tensor.name,
           .bit = 4 * ((row * WordsPerRow() + n / kAwqCodesPerWord) * kAwqCodesPerWord + nibble),
           .bits = 4}};
}

StoredBits AwqGemmLinear::WhereCode(uint64_t n, uint64_t k) const {
  return WhereNibble(*tensors().qweight, k, n);
}

StoredBits AwqGemmLinear::WhereScale(uint64_t n, uint64_t g) const {
  return WhereElement(*tensors().scales, g * n_ + n);
}

StoredBits AwqGemmLinear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  if (tensors().qzeros == nullptr) return {};
  return WhereNibble(*tensors().qzeros, g, n);
}

PanelRange AwqGemmLinear::CodesNear(uint64_t byte) const {
  return {.n0 = 0, .rows = n_, .k0 = byte / (WordsPerRow() * kWideWordBytes), .cols = 1};
}

}  // namespace

std::unique_ptr<QuantizedLinear> MakeGemmLinear(const Checkpoint& checkpoint,
                                                const ModuleParts& parts) {
  return std::make_unique<AwqGemmLinear>(checkpoint, parts);
}

}  // namespace prepack::awq
