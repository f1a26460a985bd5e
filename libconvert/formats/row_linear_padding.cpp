// RowLinear: bits that belong to no code.

#include <algorithm>
#include <bit>

#include "formats/row_checks.h"
#include "formats/row_linear.h"

namespace prepack {

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
  const uint32_t bits = scheme_.bits;
  const RowCodes stored = parts_.stored;
  if (stored == RowCodes::kBytes) return stray;
  if (HasPadding(stored, bits, k_)) {
    std::vector<std::byte> row(row_bytes_);
    for (uint64_t n = 0; n < n_; ++n) {
      Status status = checkpoint().Read(*parts_.codes, (parts_.expert * n_ + n) * row_bytes_, row);
      if (!status.ok()) return status;
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

}  // namespace prepack
