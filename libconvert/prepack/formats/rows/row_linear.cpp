#include "prepack/formats/rows/row_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/group_order.h"
#include "prepack/formats/rows/row_checks.h"
#include "prepack/kernels/codes.h"

namespace prepack {

namespace {

// Field `index` of a column of 32-bit little-endian words that lie `stride` bytes apart.
uint32_t Field(RowCodes stored, uint32_t bits, const std::byte* column, uint64_t stride,
               uint64_t index) {
  const uint64_t per_word = kWordBits / bits;
  const uint64_t first = stored == RowCodes::kWordAligned
                             ? index / per_word * kWordBits + index % per_word * bits
                             : index * bits;
  const std::byte* word = column + first / kWordBits * stride;
  const auto shift = static_cast<uint32_t>(first % kWordBits);
  uint32_t value = LoadLittleWord(word) >> shift;
  if (shift + bits > kWordBits) value |= LoadLittleWord(word + stride) << (kWordBits - shift);
  return value & ((1U << bits) - 1);
}

// Bytes of a stored row.
uint64_t RowBytes(const RowModule& parts) {
  switch (parts.stored) {
    case RowCodes::kBytes:
      return parts.k;
    case RowCodes::kNibbles:
      return parts.k / 2;
    case RowCodes::kDense:
    case RowCodes::kWordAligned:
      break;
  }
  return 4 * RowWords(parts.stored, parts.scheme.bits, parts.k);
}

}  // namespace

uint64_t RowWords(RowCodes codes, uint32_t bits, uint64_t count) {
  return CodeWords(bits, codes == RowCodes::kWordAligned, count);
}

RowLinear::RowLinear(const Checkpoint& checkpoint, const RowModule& parts)
    : StoredLinear(checkpoint),
      parts_(static_cast<const RowTensors&>(parts)),
      row_bytes_(RowBytes(parts)),
      first_scale_(0) {
  module_.BorrowFrom(parts.codes->name, parts.module);
  scheme_ = parts.scheme;
  n_ = parts.n;
  k_ = parts.k;
  first_scale_ = parts.first_scale.value_or(parts.expert * ScaleCount());
  if (parts.order != nullptr) {
    k_order_ = std::make_unique<KeptOrder>(
        [&checkpoint, g_idx = parts.order, k = parts.k, group_size = parts.scheme.group_size] {
          return ReadKOrder(checkpoint, *g_idx, k, group_size, GroupDialect::kCompressedTensors);
        });
  }
  SetRare({.input = parts.input,
           .global_scale = parts.global_scale,
           .input_global_scale = parts.input_global_scale,
           .stacked_bias = parts.BiasRow()});
  stored_scale_dtype_ =
      parts.global_scale ? DType::kF32 : ScaleDType(*parts.scale, parts.scale_form);
  AddSource(*parts.codes, parts.experts);
  AddSource(*parts.scale, parts.scale_sharers == 0 ? parts.experts : parts.scale_sharers);
  if (parts.zero_point != nullptr) AddSource(*parts.zero_point, parts.experts);
  if (parts.global_scale) AddSource(*parts.global_scale_tensor, parts.experts);
  for (const StoredTensor* tensor : parts.side_tensors) AddSource(*tensor, parts.experts);
}

RowLinear::RowLinear(const InStoredOrder& other)
    : StoredLinear(ViewOf{other.linear}),
      parts_(other.linear.parts_),
      row_bytes_(other.linear.row_bytes_),
      first_scale_(other.linear.first_scale_) {
  Describe(other.linear);
}

std::unique_ptr<QuantizedLinear> RowLinear::InModelOrder() const {
  return std::make_unique<RowLinear>(InStoredOrder{*this});
}

uint64_t RowLinear::ScaleIndex(uint64_t n, uint64_t group) const {
  if (scheme_->granularity == Granularity::kTensor) return first_scale_;
  return first_scale_ + n / scheme_->scale_rows * groups() + group;
}

uint64_t RowLinear::ScaleCount() const {
  if (scheme_->granularity == Granularity::kTensor) return 1;
  return CeilDiv(n_, scheme_->scale_rows) * groups();
}

Status RowLinear::ReadStoredScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  if (scheme_->scale_rows == 1) {
    PREPACK_TRY(
        ReadScaleNumbers(checkpoint(), *parts_.scale, parts_.scale_form, ScaleIndex(n0, 0), out));
    if (!global_scale()) return {};
    const GlobalScale global = *global_scale();
    for (float& scale : out) scale = global.Apply(scale);
    return {};
  }
  const uint64_t first = ScaleIndex(n0, 0);
  Scratch<float> stored(ScaleIndex(n0 + rows - 1, groups() - 1) + 1 - first);
  PREPACK_TRY(ReadScaleNumbers(checkpoint(), *parts_.scale, parts_.scale_form, first, stored));
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t g = 0; g < groups(); ++g) {
      out[row * groups() + g] = stored[ScaleIndex(n0 + row, g) - first];
    }
  }
  return {};
}

Status RowLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok() || rows == 0) return status;
  status = ReadStoredScales(n0, rows, out);
  if (status.ok()) status = CheckScales(*parts_.scale, n0, rows, out);
  if (status.ok() && scheme_->symmetric && parts_.zero_point != nullptr) {
    Scratch<uint8_t> zero_points(out.size());
    return ReadZeroPoints(n0, rows, zero_points);
  }
  return status;
}

Status RowLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok() || rows == 0) return status;
  // A stored zero is the signed number 0, which is this in the domain of unsigned codes.
  const uint8_t zero = scheme_->symmetric ? ZeroOfSymmetric(scheme())
                                          : static_cast<uint8_t>(1U << (scheme_->bits - 1));
  switch (parts_.zero_points) {
    case RowZeroPoints::kNone:
      std::fill(out.begin(), out.end(), zero);
      return {};
    case RowZeroPoints::kPacked:
      status = ReadPackedZeroPoints(n0, rows, out);
      break;
    case RowZeroPoints::kUnpacked:
      status = ReadUnpackedZeroPoints(n0, rows, out);
      break;
  }
  if (!status.ok() || !scheme_->symmetric) return status;
  // Read in the unsigned domain, in which zero is 2^(b-1) even where codes are signed.
  const auto middle = static_cast<uint8_t>(1U << (scheme_->bits - 1));
  const auto odd = std::ranges::find_if(out, [&](uint8_t z) { return z != middle; });
  if (odd == out.end()) {
    std::fill(out.begin(), out.end(), zero);
    return {};
  }
  const auto index = static_cast<uint64_t>(odd - out.begin());
  return Malformed(checkpoint().Where(*parts_.zero_point),
                   "the scheme is symmetric, but a zero point is not zero")
      .Found(fmt::format("{} at [{}, {}]", static_cast<int>(*odd) - middle, n0 + index / groups(),
                         index % groups()))
      .Hint("Either the config or the tensor is wrong")
      .Id(FindingId("zero-point-not-symmetric"));
}

Status RowLinear::ReadPackedZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  // All words of the rows that [n0, n0 + rows) may lie in: a dense field can cross two of them.
  const RowCodes stored = parts_.stored;
  const uint64_t word_row_bytes = parts_.zero_point_columns * 4;
  const uint64_t all_rows = RowWords(stored, scheme_->bits, n_);
  const uint64_t unit = stored == RowCodes::kDense ? kWordBits : kWordBits / scheme_->bits;
  const uint64_t first_code = n0 / unit * unit;
  const uint64_t first = RowWords(stored, scheme_->bits, first_code);
  const uint64_t last = std::min(all_rows, RowWords(stored, scheme_->bits, n0 + rows));
  Scratch<std::byte> words((last - first) * word_row_bytes);
  PREPACK_TRY(checkpoint().Read(*parts_.zero_point,
                                (parts_.expert * all_rows + first) * word_row_bytes, words));
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t g = 0; g < groups(); ++g) {
      out[row * groups() + g] = static_cast<uint8_t>(Field(
          stored, scheme_->bits, words.data() + g * 4, word_row_bytes, n0 + row - first_code));
    }
  }
  return {};
}

Status RowLinear::ReadUnpackedZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  const uint64_t first = ScaleIndex(n0, 0);
  Scratch<uint8_t> stored(ScaleIndex(n0 + rows - 1, groups() - 1) + 1 - first);
  Status status =
      checkpoint().Read(*parts_.zero_point, first, std::as_writable_bytes(std::span(stored)));
  if (!status.ok()) return status;
  const int half = 1 << (scheme_->bits - 1);
  for (uint64_t i = 0; i < out.size(); ++i) {
    const uint64_t n = n0 + i / groups();
    const int value = SignedByte(stored[ScaleIndex(n, i % groups()) - first]);
    if (value < -half || value >= half) {
      return Malformed(checkpoint().Where(*parts_.zero_point),
                       fmt::format("a zero point is outside {} bits", scheme_->bits))
          .Found(fmt::format("{} at [{}, {}]", value, n, i % groups()))
          .Expected(fmt::format("{} to {}", -half, half - 1))
          .Id(FindingId("zero-point-outside-bits"));
    }
    out[i] = static_cast<uint8_t>(value + half);
  }
  return {};
}

// RowLinear: bits that belong to no code.

namespace {

// Word `index` of as many as hold `count` codes: the bits that no code uses.
uint32_t UnusedBits(RowCodes stored, uint32_t bits, uint64_t count, uint64_t index) {
  const uint64_t per_word = kWordBits / bits;
  uint64_t used = 0;  // low bits of this word
  if (stored == RowCodes::kWordAligned) {
    const uint64_t before = index * per_word;
    used = std::min(per_word, count > before ? count - before : 0) * bits;
  } else {
    const uint64_t before = index * kWordBits;
    used = std::min<uint64_t>(kWordBits, count * bits > before ? count * bits - before : 0);
  }
  return used == kWordBits ? 0 : ~((1U << used) - 1);
}

// Does any word have unused bits?
bool HasPadding(RowCodes stored, uint32_t bits, uint64_t count) {
  if (stored == RowCodes::kWordAligned && kWordBits % bits != 0) return true;
  return count * bits % kWordBits != 0;
}

}  // namespace

Result<uint64_t> RowLinear::CountStrayBits() const {
  uint64_t stray = 0;
  const uint32_t bits = scheme_->bits;
  const RowCodes stored = parts_.stored;
  if (stored == RowCodes::kBytes || stored == RowCodes::kNibbles) return stray;
  if (HasPadding(stored, bits, k_)) {
    std::vector<std::byte> row(row_bytes_);
    for (uint64_t n = 0; n < n_; ++n) {
      PREPACK_TRY(checkpoint().Read(*parts_.codes, (parts_.expert * n_ + n) * row_bytes_, row));
      for (uint64_t w = 0; w < row_bytes_ / 4; ++w) {
        const uint32_t unused = UnusedBits(stored, bits, k_, w);
        stray += static_cast<uint64_t>(std::popcount(LoadLittleWord(row.data() + 4 * w) & unused));
      }
    }
  }
  if (parts_.zero_points != RowZeroPoints::kPacked || !HasPadding(stored, bits, n_)) return stray;
  const uint64_t rows = RowWords(stored, bits, n_);
  std::vector<std::byte> row(parts_.zero_point_columns * 4);
  for (uint64_t r = 0; r < rows; ++r) {
    const uint32_t unused = UnusedBits(stored, bits, n_, r);
    if (unused == 0) continue;
    Status status =
        checkpoint().Read(*parts_.zero_point, (parts_.expert * rows + r) * row.size(), row);
    if (!status.ok()) return status;
    for (uint64_t g = 0; g < groups(); ++g) {
      stray += static_cast<uint64_t>(std::popcount(LoadLittleWord(row.data() + 4 * g) & unused));
    }
  }
  return stray;
}

// RowLinear: where a number lies.

namespace {

// Field `index` of a column of 32-bit words: the runs of bits in words `stride_words` apart, of
// which the first is word `first_word` of the tensor.
StoredBits WhereField(const StoredTensor& tensor, RowCodes stored, uint32_t bits, uint64_t index,
                      uint64_t first_word, uint64_t stride_words) {
  const uint64_t per_word = kWordBits / bits;
  const bool aligned = stored == RowCodes::kWordAligned;
  const uint64_t word = aligned ? index / per_word : index * bits / kWordBits;
  const auto shift =
      static_cast<uint32_t>(aligned ? index % per_word * bits : index * bits % kWordBits);
  const uint32_t in_first = std::min<uint32_t>(bits, kWordBits - shift);
  const auto first_bit = [&](uint64_t at) { return (first_word + at * stride_words) * kWordBits; };
  StoredBits found = {{.tensor = tensor.name, .bit = first_bit(word) + shift, .bits = in_first}};
  if (in_first == bits) return found;
  if (stride_words == 1) return {{.tensor = tensor.name, .bit = found.front().bit, .bits = bits}};
  found.push_back({.tensor = tensor.name, .bit = first_bit(word + 1), .bits = bits - in_first});
  return found;
}

}  // namespace

StoredBits RowLinear::WhereCode(uint64_t n, uint64_t k) const {
  const uint64_t row = parts_.expert * n_ + n;
  if (parts_.stored == RowCodes::kBytes) return WhereElement(*parts_.codes, row * k_ + k);
  if (parts_.stored == RowCodes::kNibbles) {
    return {{.tensor = parts_.codes->name, .bit = (row * k_ + k) * 4, .bits = 4}};
  }
  return WhereField(*parts_.codes, parts_.stored, scheme_->bits, k, row * (row_bytes_ / 4), 1);
}

StoredBits RowLinear::WhereScale(uint64_t n, uint64_t g) const {
  return WhereElement(*parts_.scale, ScaleIndex(n, g));
}

StoredBits RowLinear::WhereZeroPoint(uint64_t n, uint64_t g) const {
  switch (parts_.zero_points) {
    case RowZeroPoints::kNone:
      break;
    case RowZeroPoints::kUnpacked:
      return WhereElement(*parts_.zero_point, ScaleIndex(n, g));
    case RowZeroPoints::kPacked: {
      const uint64_t rows = RowWords(parts_.stored, scheme_->bits, n_);
      const uint64_t columns = parts_.zero_point_columns;
      return WhereField(*parts_.zero_point, parts_.stored, scheme_->bits, n,
                        parts_.expert * rows * columns + g, columns);
    }
  }
  return {};
}

PanelRange RowLinear::CodesNear(uint64_t byte) const {
  const uint64_t row = byte / row_bytes_;
  if (row / n_ != parts_.expert) return {};
  return {.n0 = row % n_, .rows = 1, .k0 = 0, .cols = k_};
}

}  // namespace prepack
