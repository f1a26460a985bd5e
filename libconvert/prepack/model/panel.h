#pragma once

// Parallel work over weights that does not depend on the number of threads: every matrix is cut
// into stripes of consecutive rows by its shape alone. What is summed per stripe, and merged in the
// order of the stripes, has the same bits on one thread and on a hundred.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "prepack/model/scheme.h"

namespace prepack {

// Large enough that a stripe's result (a few KB) is small beside it, small enough that the threads
// finish together: a 70B model has 17,000 stripes.
inline constexpr uint64_t kStripeWeights = uint64_t{1} << 22;

// Weights that are read at a time: codes and widened floats of one thread stay in its caches.
inline constexpr uint64_t kStripePanelWeights = uint64_t{1} << 18;

struct RowStripe {
  size_t matrix = 0;  // index of the caller
  uint64_t n0 = 0;
  uint64_t rows = 0;
};

// Appends the stripes of matrix [n, k]. Rows come in eights where there are that many, because
// zero points can lie eight channels to a word.
inline void AppendStripes(size_t matrix, uint64_t n, uint64_t k, std::vector<RowStripe>& stripes) {
  const uint64_t rows = std::max<uint64_t>(8, kStripeWeights / std::max<uint64_t>(k, 1) / 8 * 8);
  for (uint64_t n0 = 0; n0 < n; n0 += rows) {
    stripes.push_back({.matrix = matrix, .n0 = n0, .rows = std::min(rows, n - n0)});
  }
}

// Rows come in eights up to so many weights, and one by one beyond: what is read at a time must not
// grow with K by more than it has to.
inline constexpr uint64_t kMostPanelWeights = uint64_t{1} << 20;

// Rows of [., k] to read at a time.
inline uint64_t StripePanelRows(uint64_t k) {
  const uint64_t inputs = std::max<uint64_t>(k, 1);
  const uint64_t eights = std::max<uint64_t>(8, kStripePanelWeights / inputs / 8 * 8);
  return inputs <= kMostPanelWeights / 8 ? eights
                                         : std::max<uint64_t>(1, kMostPanelWeights / inputs);
}

// The unit of work between readers and layouts: a block of consecutive output channels by a run of
// input channels, in canonical form. Small enough for the L2 cache, so that memory is bounded by
// threads × panel, whatever the size of the model.

// Output channels [n0, n0 + rows) by input channels [k0, k0 + cols) of a module.
struct PanelRange {
  uint64_t n0 = 0;
  uint64_t rows = 0;
  uint64_t k0 = 0;
  uint64_t cols = 0;

  friend bool operator==(const PanelRange&, const PanelRange&) = default;
};

// A panel of codes: row-major. Codes of 4 bits (IsNibble) lie two per byte, the even input channel
// in the low half; k0 and cols of such a panel are even.
//
//     byte   0      1      2
//     row 0  k1|k0  k3|k2  k5|k4  …      (high half | low half)
//     row 1  starts PanelRowBytes(cols) later
//
// This is how compressed-tensors stores codes, so the most common reader copies bytes. All other
// codes take one byte each, dequantized weights two.
constexpr size_t PanelRowBytes(CodeType code, uint64_t cols) {
  return static_cast<size_t>((cols * CodeBits(code) + 7) / 8);
}
constexpr size_t PanelBytes(CodeType code, const PanelRange& range) {
  return static_cast<size_t>(range.rows) * PanelRowBytes(code, range.cols);
}

// The bits of code [row, col], both counted from the start of the panel. Not of kBF16.
inline uint8_t PanelCode(CodeType code, std::span<const std::byte> panel, uint64_t cols,
                         uint64_t row, uint64_t col) {
  if (!IsNibble(code)) return std::to_integer<uint8_t>(panel[row * cols + col]);
  const auto byte = std::to_integer<unsigned>(panel[row * PanelRowBytes(code, cols) + col / 2]);
  return static_cast<uint8_t>(col % 2 == 0 ? byte & 15U : byte >> 4);
}

// The same for every type.
inline uint16_t PanelBits(CodeType code, std::span<const std::byte> panel, uint64_t cols,
                          uint64_t row, uint64_t col) {
  if (code != CodeType::kBF16) return PanelCode(code, panel, cols, row, col);
  uint16_t bits = 0;
  std::memcpy(&bits, &panel[(row * cols + col) * sizeof bits], sizeof bits);
  return bits;
}

// Calls visit(row, bytes) for each row of a panel of `rows` rows: a whole number of bytes each.
template <typename Visit>
void ForPanelRows(std::span<const std::byte> panel, uint64_t rows, Visit visit) {
  const size_t row_bytes = rows == 0 ? 0 : panel.size() / static_cast<size_t>(rows);
  for (uint64_t row = 0; row < rows; ++row) {
    visit(row, panel.subspan(static_cast<size_t>(row) * row_bytes, row_bytes));
  }
}

// Calls visit(col, bits) for each of the `cols` codes of a row of a panel, in their order. Not of
// kBF16.
template <typename Visit>
void ForRowCodes(CodeType code, std::span<const std::byte> row, uint64_t cols, Visit visit) {
  if (!IsNibble(code)) {
    for (uint64_t col = 0; col < cols; ++col) visit(col, std::to_integer<unsigned>(row[col]));
    return;
  }
  for (uint64_t col = 0; col + 1 < cols; col += 2) {
    const auto byte = std::to_integer<unsigned>(row[col / 2]);
    visit(col, byte & 15U);
    visit(col + 1, byte >> 4);
  }
  if (cols % 2 != 0) visit(cols - 1, std::to_integer<unsigned>(row[cols / 2]) & 15U);
}

}  // namespace prepack
