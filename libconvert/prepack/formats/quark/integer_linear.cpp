// Quark's integers as QuantizedLinear: nibbles by output channel, and bytes by output or by input
// channel.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/quark/integers.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/kernels/awq.h"
#include "prepack/kernels/kernels.h"

namespace prepack::quark {
namespace {

constexpr uint64_t kWordBytes = 4;
// Of bytes by input channel, so many output channels at a time: runs of 256 bytes in the file.
constexpr uint64_t kWideRows = 256;
constexpr uint32_t kHighBitOfNibbles = 0x88888888;
constexpr uint8_t kHighBitOfByte = 0x80;

class IntegerLinear final : public StoredLinear {
 public:
  IntegerLinear(const Checkpoint& checkpoint, const IntegerParts& parts);

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  std::optional<CodesInSource> FindCodes(const PanelRange& range) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override;
  StoredBits WhereScale(uint64_t n, uint64_t g) const override;
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override;
  PanelRange CodesNear(uint64_t byte) const override;

 private:
  bool IsNibbles() const { return scheme_->bits == 4; }
  bool ByInputs() const {
    return parts_.stored == Granularity::kGroup && !parts_.groups_by_outputs;
  }
  bool IsOneScale() const { return parts_.stored == Granularity::kTensor; }
  // Codes of two's complement become unsigned.
  bool Shifts() const { return parts_.is_signed && scheme_->code != CodeType::kS8; }
  Status ReadNibbles(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadBytes(const PanelRange& range, std::span<std::byte> out) const;
  // As they are stored, one byte each, in the order of the output channels.
  Status ReadStoredZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const;
  Status ReadWordsOfZeroPoints(uint64_t n0, std::span<uint8_t> out) const;
  uint64_t ScaleIndex(uint64_t n, uint64_t g) const;
  uint64_t Nibble(uint64_t index) const {
    const auto in_word = static_cast<unsigned>(index % kAwqCodesPerWord);
    return parts_.awq_order ? AwqNibble(in_word) : in_word;
  }

  IntegerParts parts_;
};

IntegerLinear::IntegerLinear(const Checkpoint& checkpoint, const IntegerParts& parts)
    : StoredLinear(checkpoint), parts_(parts) {
  module_.BorrowFrom(parts.weight->name, parts.module);
  scheme_ = parts.scheme;
  n_ = parts.n;
  k_ = parts.k;
  SetRare({.input = parts.input});
  stored_scale_dtype_ = parts.scale->dtype;
  if (ByInputs()) wide_rows_ = kWideRows;
  AddSource(*parts.weight);
  AddSource(*parts.scale);
  if (parts.zero_point != nullptr) AddSource(*parts.zero_point);
  for (const StoredTensor* tensor : parts.side_tensors) AddSource(*tensor);
}

Status IntegerLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  Status status = CheckPanel(range, out.size());
  if (!status.ok() || out.empty()) return status;
  return IsNibbles() ? ReadNibbles(range, out) : ReadBytes(range, out);
}

// Words of the rows, put in order; a panel may begin and end within one.
Status IntegerLinear::ReadNibbles(const PanelRange& range, std::span<std::byte> out) const {
  const uint64_t first = range.k0 / kAwqCodesPerWord;
  const uint64_t words = CeilDiv(range.k0 + range.cols, kAwqCodesPerWord) - first;
  Scratch<uint32_t> stored(range.rows * words);
  PREPACK_TRY(
      checkpoint().ReadRuns(*parts_.weight,
                            {.offset = (range.n0 * (k_ / kAwqCodesPerWord) + first) * kWordBytes,
                             .run_bytes = words * kWordBytes,
                             .stride = k_ / kAwqCodesPerWord * kWordBytes,
                             .runs = range.rows},
                            std::as_writable_bytes(std::span(stored))));
  const uint32_t flip = parts_.is_signed ? kHighBitOfNibbles : 0;
  if (parts_.awq_order) {
    for (uint32_t& word : stored) word = AwqWordInOrder(word) ^ flip;
  } else {
    for (uint32_t& word : stored) word ^= flip;
  }
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  const auto* const bytes = reinterpret_cast<const std::byte*>(stored.data());
  for (uint64_t row = 0; row < range.rows; ++row) {
    std::byte* const to = out.data() + row * row_bytes;
    std::memcpy(to, bytes + row * words * kWordBytes + range.k0 % kAwqCodesPerWord / 2, row_bytes);
    if (range.cols % 2 != 0) to[row_bytes - 1] &= std::byte{0x0F};
  }
  return {};
}

Status IntegerLinear::ReadBytes(const PanelRange& range, std::span<std::byte> out) const {
  if (ByInputs()) {
    Scratch<std::byte> stored(out.size());
    PREPACK_TRY(checkpoint().ReadRuns(*parts_.weight,
                                      {.offset = range.k0 * n_ + range.n0,
                                       .run_bytes = range.rows,
                                       .stride = n_,
                                       .runs = range.cols},
                                      stored));
    TransposeUnits(1)(stored.data(), range.rows, range.cols, range.rows, out.data(), range.cols);
  } else {
    PREPACK_TRY(checkpoint().ReadRuns(*parts_.weight,
                                      {.offset = range.n0 * k_ + range.k0,
                                       .run_bytes = range.cols,
                                       .stride = k_,
                                       .runs = range.rows},
                                      out));
  }
  if (!Shifts()) return {};
  for (std::byte& code : out) code ^= std::byte{kHighBitOfByte};
  return {};
}

std::optional<QuantizedLinear::CodesInSource> IntegerLinear::FindCodes(
    const PanelRange& range) const {
  if (IsNibbles() || ByInputs() || Shifts() || range.cols != k_) return std::nullopt;
  return CodesInSource{.tensor = parts_.weight->name, .offset = range.n0 * k_};
}

uint64_t IntegerLinear::ScaleIndex(uint64_t n, uint64_t g) const {
  if (IsOneScale()) return 0;
  return parts_.groups_by_outputs ? n * groups() + g : g * n_ + n;
}

Status IntegerLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok() || out.empty()) return status;
  if (IsOneScale()) {
    PREPACK_TRY(ReadFloats(checkpoint(), *parts_.scale, 0, out.first(1)));
    std::ranges::fill(out, out.front());
  } else if (parts_.groups_by_outputs) {
    PREPACK_TRY(ReadFloats(checkpoint(), *parts_.scale, n0 * groups(), out));
  } else {
    PREPACK_TRY(ReadFloatColumns(checkpoint(), *parts_.scale, n_, groups(), n0, rows, out));
  }
  return CheckScales(*parts_.scale, n0, rows, out);
}

Status IntegerLinear::ReadWordsOfZeroPoints(uint64_t n0, std::span<uint8_t> out) const {
  const uint64_t first = n0 / kAwqCodesPerWord;
  const uint64_t words = CeilDiv(n0 + out.size(), kAwqCodesPerWord) - first;
  Scratch<std::byte> stored(words * kWordBytes);
  PREPACK_TRY(checkpoint().Read(*parts_.zero_point, first * kWordBytes, stored));
  for (uint64_t i = 0; i < out.size(); ++i) {
    const uint64_t n = n0 + i;
    const uint32_t word =
        LoadLittleWord(stored.data() + (n / kAwqCodesPerWord - first) * kWordBytes);
    out[i] = static_cast<uint8_t>(word >> (4 * Nibble(n)) & 15U);
  }
  return {};
}

Status IntegerLinear::ReadStoredZeroPoints(uint64_t n0, uint64_t rows,
                                           std::span<uint8_t> out) const {
  const auto bytes = std::as_writable_bytes(out);
  if (IsOneScale()) {
    // Of 4 bits, a word by itself; its lowest byte has it.
    PREPACK_TRY(checkpoint().Read(*parts_.zero_point, 0, bytes.first(1)));
    std::ranges::fill(out, IsNibbles() ? out.front() & 15U : out.front());
    return {};
  }
  if (IsNibbles()) return ReadWordsOfZeroPoints(n0, out);
  if (parts_.groups_by_outputs) {
    return checkpoint().Read(*parts_.zero_point, n0 * groups(), bytes);
  }
  Scratch<std::byte> stored(out.size());
  PREPACK_TRY(checkpoint().ReadRuns(
      *parts_.zero_point, {.offset = n0, .run_bytes = rows, .stride = n_, .runs = groups()},
      stored));
  TransposeUnits(1)(stored.data(), rows, groups(), rows, bytes.data(), groups());
  return {};
}

Status IntegerLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok() || out.empty()) return status;
  if (parts_.zero_point == nullptr) {
    std::ranges::fill(out, ZeroOfSymmetric(scheme()));
    return {};
  }
  PREPACK_TRY(ReadStoredZeroPoints(n0, rows, out));
  if (scheme_->symmetric) {
    const auto odd = std::ranges::find_if(out, [](uint8_t z) { return z != 0; });
    if (odd != out.end()) {
      const auto at = static_cast<uint64_t>(odd - out.begin());
      return Malformed(checkpoint().Where(*parts_.zero_point),
                       "the scheme is symmetric, but a zero point is not zero")
          .Found(fmt::format("{} at channel {}, group {}", *odd, n0 + at / groups(), at % groups()))
          .Hint("Either the config or the tensor is wrong")
          .Id(FindingId("zero-point-not-symmetric"));
    }
    std::ranges::fill(out, ZeroOfSymmetric(scheme()));
    return {};
  }
  if (!Shifts()) return {};
  const auto flip = static_cast<uint8_t>(1U << (scheme_->bits - 1));
  for (uint8_t& z : out) z ^= flip;
  return {};
}

StoredBits IntegerLinear::WhereCode(uint64_t n, uint64_t k) const {
  if (!IsNibbles()) return WhereElement(*parts_.weight, ByInputs() ? k * n_ + n : n * k_ + k);
  const uint64_t word = n * (k_ / kAwqCodesPerWord) + k / kAwqCodesPerWord;
  return {{.tensor = parts_.weight->name, .bit = 32 * word + 4 * Nibble(k), .bits = 4}};
}

StoredBits IntegerLinear::WhereScale(uint64_t n, uint64_t g) const {
  return WhereElement(*parts_.scale, ScaleIndex(n, g));
}

StoredBits IntegerLinear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  if (parts_.zero_point == nullptr) return {};
  if (!IsNibbles()) return WhereElement(*parts_.zero_point, ScaleIndex(n, g));
  const uint64_t index = IsOneScale() ? 0 : n;
  const uint64_t bit = 32 * (index / kAwqCodesPerWord) + 4 * (IsOneScale() ? 0 : Nibble(index));
  return {{.tensor = parts_.zero_point->name, .bit = bit, .bits = 4}};
}

PanelRange IntegerLinear::CodesNear(uint64_t byte) const {
  if (ByInputs()) return {.n0 = byte % n_, .rows = 1, .k0 = byte / n_, .cols = 1};
  if (!IsNibbles()) return {.n0 = byte / k_, .rows = 1, .k0 = byte % k_, .cols = 1};
  const uint64_t word = byte / kWordBytes;
  const uint64_t row_words = k_ / kAwqCodesPerWord;
  return {.n0 = word / row_words,
          .rows = 1,
          .k0 = word % row_words * kAwqCodesPerWord,
          .cols = kAwqCodesPerWord};
}

}  // namespace

std::unique_ptr<QuantizedLinear> MakeIntegerLinear(const Checkpoint& checkpoint,
                                                   const IntegerParts& parts) {
  return std::make_unique<IntegerLinear>(checkpoint, parts);
}

}  // namespace prepack::quark
