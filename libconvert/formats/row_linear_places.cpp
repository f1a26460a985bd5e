// RowLinear: where a number lies.

#include <algorithm>

#include "formats/row_checks.h"
#include "formats/row_linear.h"

namespace prepack {

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
  return WhereField(*parts_.codes, parts_.stored, scheme_.bits, k, row * (row_bytes_ / 4), 1);
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
      const uint64_t rows = RowWords(parts_.stored, scheme_.bits, n_);
      const uint64_t columns = parts_.zero_point_columns;
      return WhereField(*parts_.zero_point, parts_.stored, scheme_.bits, n,
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
