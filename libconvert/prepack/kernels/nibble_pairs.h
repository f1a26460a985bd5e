#pragma once

// Brings 32 rows of nibbles into the order of instructions that multiply four bytes at a time, with
// the codes of channels n and n + 8 in one byte, in blocks that end with the sums of their codes:
//
//     rows     row n, byte k/2, low half when k is even       (32 rows of nibbles)
//     block    byte (k/4)·64 + (n/16)·32 + (n mod 8)·4 + k mod 4, low half when n/8 is even,
//              for k counted from its first column; then, for each row, i32 Σ of its codes
//
// A block has `cols` columns, a multiple of four and at most kMostPairCols; blocks lie one after
// the other, at any alignment. Rows are `row_bytes` apart.

#include <cstddef>
#include <cstdint>

namespace prepack {

inline constexpr size_t kPairRows = 32;
inline constexpr size_t kPairCols = 4;  // what `cols` is a multiple of
inline constexpr size_t kMostPairCols = 512;
// Bytes for four columns.
inline constexpr size_t kPairStepBytes = kPairRows * kPairCols / 2;

// Bytes of the codes of a block, which its sums follow.
constexpr size_t PairCodeBytes(size_t cols) {
  return cols / kPairCols * kPairStepBytes;
}
constexpr size_t PairBlockBytes(size_t cols) {
  return PairCodeBytes(cols) + kPairRows * sizeof(int32_t);
}

// Reads blocks · cols / 2 bytes of each row, writes so many blocks.
using RowsToPairsFn = void(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                           uint8_t* pairs);
// The inverse, which does not look at the sums.
using PairsToRowsFn = void(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                           uint8_t* rows);

}  // namespace prepack
