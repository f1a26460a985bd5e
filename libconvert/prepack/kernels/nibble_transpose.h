#pragma once

// Transposes a block of 16 rows of nibbles:
//
//     rows     row r, byte k/2, low half when k is even           (16 rows of `cols` nibbles)
//     columns  word k (8 bytes), nibble r: byte k·stride + r/2, low half when r is even
//
// For rows a … p and columns 0, 1, 2, …, written as low nibble first:
//
//     a0a1 a2a3 …              a0b0 c0d0 … o0p0  a1b1 c1d1 … o1p1  a2b2 …
//     b0b1 b2b3 …      ⇄
//     …
//
// `cols` is even; rows are `row_bytes` apart, and words `column_stride`: kTransposeWordBytes when
// they lie back to back.

#include <cstddef>
#include <cstdint>

namespace prepack {

inline constexpr size_t kTransposeRows = 16;
inline constexpr size_t kTransposeWordBytes = kTransposeRows / 2;

// Rows to columns: reads cols/2 bytes of each of 16 rows, writes `cols` words.
using RowsToWordsFn = void(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
                           size_t column_stride);
// The inverse.
using WordsToRowsFn = void(const uint8_t* columns, size_t column_stride, size_t cols,
                           size_t row_bytes, uint8_t* rows);

// The same with blocks of 64 rows, so that what is written of a column is half a cache line and not
// an eighth of one:
//
//     rows     row r, byte k/2, low half when k is even           (64 rows of `cols` nibbles)
//     columns  column k, byte r/2 (of 32), low half when r is even
//
// Every byte is XORed with `mask` on the way, which costs next to nothing here and a pass
// elsewhere.

inline constexpr size_t kWideTransposeRows = 64;

// Reads cols/2 bytes of each row, writes 32 bytes of each column.
using RowsToColumnsFn = void(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                             uint8_t* columns, size_t column_stride);
// The inverse.
using ColumnsToRowsFn = void(const uint8_t* columns, size_t column_stride, size_t cols,
                             uint8_t mask, size_t row_bytes, uint8_t* rows);

}  // namespace prepack
