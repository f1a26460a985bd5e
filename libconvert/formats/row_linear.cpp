#include "formats/row_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/scratch.h"
#include "formats/finding.h"
#include "formats/row_checks.h"

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

}  // namespace

uint64_t RowWords(RowCodes codes, uint32_t bits, uint64_t count) {
  if (codes == RowCodes::kWordAligned) return CeilDiv(count, kWordBits / bits);
  // ⌈count · bits / 32⌉ without overflow: 32 codes take `bits` words.
  return count / kWordBits * bits + CeilDiv(count % kWordBits * bits, kWordBits);
}

RowLinear::RowLinear(const Checkpoint& checkpoint, const RowModule& parts)
    : StoredLinear(checkpoint),
      parts_(static_cast<const RowTensors&>(parts)),
      row_bytes_(parts.stored == RowCodes::kBytes
                     ? parts.k
                     : 4 * RowWords(parts.stored, parts.scheme.bits, parts.k)) {
  module_ = parts.module;
  scheme_ = parts.scheme;
  n_ = parts.n;
  k_ = parts.k;
  if (parts.order != nullptr) {
    k_order_ = std::make_unique<KeptOrder>(
        [&checkpoint, g_idx = parts.order, k = parts.k, group_size = parts.scheme.group_size] {
          return ReadKOrder(checkpoint, *g_idx, k, group_size);
        });
  }
  input_ = parts.input;
  stored_scale_dtype_ = ScaleDType(*parts.scale, parts.scale_form);
  AddSource(*parts.codes, parts.experts);
  AddSource(*parts.scale, parts.experts);
  if (parts.zero_point != nullptr) AddSource(*parts.zero_point, parts.experts);
  for (const StoredTensor* tensor : parts.side_tensors) AddSource(*tensor, parts.experts);
}

uint64_t RowLinear::ScaleIndex(uint64_t n, uint64_t group) const {
  const uint64_t first = parts_.expert * ScaleCount();
  if (scheme_.granularity == Granularity::kTensor) return first;
  return first + n / scheme_.scale_rows * groups() + group;
}

uint64_t RowLinear::ScaleCount() const {
  if (scheme_.granularity == Granularity::kTensor) return 1;
  return CeilDiv(n_, scheme_.scale_rows) * groups();
}

Status RowLinear::ReadStoredScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  if (scheme_.scale_rows == 1) {
    return ReadScaleNumbers(checkpoint(), *parts_.scale, parts_.scale_form, ScaleIndex(n0, 0), out);
  }
  const uint64_t first = ScaleIndex(n0, 0);
  Scratch<float> stored(ScaleIndex(n0 + rows - 1, groups() - 1) + 1 - first);
  Status status = ReadScaleNumbers(checkpoint(), *parts_.scale, parts_.scale_form, first, stored);
  if (!status.ok()) return status;
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
  if (status.ok() && scheme_.symmetric && parts_.zero_point != nullptr) {
    Scratch<uint8_t> zero_points(out.size());
    return ReadZeroPoints(n0, rows, zero_points);
  }
  return status;
}

Status RowLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  Status status = CheckRows(n0, rows, out.size());
  if (!status.ok() || rows == 0) return status;
  // A stored zero is the signed number 0, which is this in the domain of unsigned codes.
  const uint8_t zero =
      scheme_.symmetric ? ZeroOfSymmetric(scheme_) : static_cast<uint8_t>(1U << (scheme_.bits - 1));
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
  if (!status.ok() || !scheme_.symmetric) return status;
  // Read in the unsigned domain, in which zero is 2^(b-1) even where codes are signed.
  const auto middle = static_cast<uint8_t>(1U << (scheme_.bits - 1));
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
  const uint64_t all_rows = RowWords(stored, scheme_.bits, n_);
  const uint64_t unit = stored == RowCodes::kDense ? kWordBits : kWordBits / scheme_.bits;
  const uint64_t first_code = n0 / unit * unit;
  const uint64_t first = RowWords(stored, scheme_.bits, first_code);
  const uint64_t last = std::min(all_rows, RowWords(stored, scheme_.bits, n0 + rows));
  Scratch<std::byte> words((last - first) * word_row_bytes);
  Status status = checkpoint().Read(*parts_.zero_point,
                                    (parts_.expert * all_rows + first) * word_row_bytes, words);
  if (!status.ok()) return status;
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t g = 0; g < groups(); ++g) {
      out[row * groups() + g] = static_cast<uint8_t>(
          Field(stored, scheme_.bits, words.data() + g * 4, word_row_bytes, n0 + row - first_code));
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
  const int half = 1 << (scheme_.bits - 1);
  for (uint64_t i = 0; i < out.size(); ++i) {
    const uint64_t n = n0 + i / groups();
    const int value = SignedByte(stored[ScaleIndex(n, i % groups()) - first]);
    if (value < -half || value >= half) {
      return Malformed(checkpoint().Where(*parts_.zero_point),
                       fmt::format("a zero point is outside {} bits", scheme_.bits))
          .Found(fmt::format("{} at [{}, {}]", value, n, i % groups()))
          .Expected(fmt::format("{} to {}", -half, half - 1))
          .Id(FindingId("zero-point-outside-bits"));
    }
    out[i] = static_cast<uint8_t>(value + half);
  }
  return {};
}

}  // namespace prepack
