#ifndef PREPACK_KERNELS_NIBBLE_TRANSPOSE_WIDE_BLOCKS_H_
#define PREPACK_KERNELS_NIBBLE_TRANSPOSE_WIDE_BLOCKS_H_

// For nibble_transpose_wide_*.cpp, and only there: what is the same with 16 registers of 32 bytes
// and with 32.
//
// Blocks of 1 KiB, of which the two lanes of a register hold what lies half a block apart: 64 rows
// by 32 columns on the way to columns, and 32 rows by 64 columns on the way back, so that what is
// written of a column or of a row is always a whole register. A block that would stick out at the
// end is moved back over its neighbour, and writes some columns twice; only fewer columns than a
// block has are left to the scalar twin.
//
// Loops over registers are unrolled by name: the compiler leaves some of them rolled, and then does
// more arithmetic on addresses than on nibbles.

#include "prepack/kernels/nibble_transpose_wide.h"
#include "prepack/kernels/prefetch.h"
#include "prepack/kernels/ymm.h"

namespace prepack {
namespace {  // NOLINT(google-build-namespaces): a copy for each instruction set

constexpr size_t kToColumnsCols = 32;
constexpr size_t kToRowsCols = 64;
constexpr size_t kToRowsRows = 32;
constexpr size_t kLaneBytes = 16;
constexpr size_t kLineBytes = 64;

// Four of sixteen registers: few enough to stay registers.
constexpr size_t kQuad = 4;

struct Quad {
  __m256i reg[kQuad];
};

// Bytes of every second column, between the two steps of a transpose.
struct Block {
  Quad quads[kQuad];
};

// Bytes have an index in their lane, and registers one among the four. Takes the two bits in front
// of the index of a byte to the registers, and those of the registers to its end.
[[gnu::always_inline]] inline Quad Rotate(const Quad& in) {
  const __m256i a = _mm256_unpacklo_epi8(in.reg[0], in.reg[2]);
  const __m256i b = _mm256_unpackhi_epi8(in.reg[0], in.reg[2]);
  const __m256i c = _mm256_unpacklo_epi8(in.reg[1], in.reg[3]);
  const __m256i d = _mm256_unpackhi_epi8(in.reg[1], in.reg[3]);
  return {{_mm256_unpacklo_epi8(a, c), _mm256_unpackhi_epi8(a, c), _mm256_unpacklo_epi8(b, d),
           _mm256_unpackhi_epi8(b, d)}};
}

// Sixteen registers are transposed, byte a of register b becoming byte b of register a, by two
// rotations: first of registers i, i + 4, i + 8, i + 12, whose results go to four quads,
[[gnu::always_inline]] inline void Spread(const Quad& in, size_t i, Block& block) {
  const Quad out = Rotate(in);
#pragma GCC unroll 4
  for (size_t j = 0; j < kQuad; ++j) block.quads[j].reg[i] = out.reg[j];
}
// then of each of these, which makes registers 4j … 4j + 3.

// The functions below are of an instruction set, which gives
//
//     static void SwapNibbles(__m256i& a, __m256i& b, __m256i masks);
//
// It exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte, and XORs both
// with `masks`: two rows become their even and their odd columns, or the other way round.

// Rows that become columns are nibbles of two columns at first; columns that become rows are so in
// the end.
enum class Swap { kFirst, kLast };

// What lies `apart` behind each of the 32 lines that are read is the other lane of its register.
template <typename Instructions, Swap kSwap>
[[gnu::always_inline]] inline void TransposeBlock(const uint8_t* in, size_t in_stride, size_t apart,
                                                  uint8_t* out, size_t out_stride, __m256i masks) {
  Block evens;
  Block odds;
#pragma GCC unroll 4
  for (size_t i = 0; i < kQuad; ++i) {
    Quad even;
    Quad odd;
#pragma GCC unroll 4
    for (size_t j = 0; j < kQuad; ++j) {
      const uint8_t* line = in + 2 * (kQuad * j + i) * in_stride;
      even.reg[j] = LoadLanes(line, line + apart);
      odd.reg[j] = LoadLanes(line + in_stride, line + in_stride + apart);
      if (kSwap == Swap::kFirst) Instructions::SwapNibbles(even.reg[j], odd.reg[j], masks);
    }
    Spread(even, i, evens);
    Spread(odd, i, odds);
  }
#pragma GCC unroll 4
  for (size_t j = 0; j < kQuad; ++j) {
    Quad even = Rotate(evens.quads[j]);
    Quad odd = Rotate(odds.quads[j]);
#pragma GCC unroll 4
    for (size_t i = 0; i < kQuad; ++i) {
      if (kSwap == Swap::kLast) Instructions::SwapNibbles(even.reg[i], odd.reg[i], masks);
      uint8_t* line = out + 2 * (kQuad * j + i) * out_stride;
      Store(line, even.reg[i]);
      Store(line + out_stride, odd.reg[i]);
    }
  }
}

template <typename Instructions>
void ColumnsToBlock(const uint8_t* columns, size_t column_stride, size_t row_bytes, uint8_t* rows,
                    __m256i masks) {
  TransposeBlock<Instructions, Swap::kLast>(columns, column_stride, kToRowsCols / 2 * column_stride,
                                            rows, row_bytes, masks);
}

// Where the next block begins.
inline size_t BlockStart(size_t next, size_t cols, size_t block_cols) {
  return next < cols - block_cols ? next : cols - block_cols;
}

// What the next blocks read is asked for some lines per block: all at once, they would wait for
// each other. While blocks go through a cache line of each row, those are of the next 64 rows.
[[gnu::always_inline]] inline void PrefetchRowsBehind(const uint8_t* row, size_t row_bytes) {
  constexpr size_t kBlocks = kLineBytes / kLaneBytes;
  constexpr size_t kRows = kWideTransposeRows / kBlocks;
  const size_t block = reinterpret_cast<uintptr_t>(row) / kLaneBytes % kBlocks;
  PrefetchRows(row + (kWideTransposeRows + block * kRows) * row_bytes, row_bytes, kRows, 1);
}

// Columns that are not back to back come from a tile in L1.
[[gnu::always_inline]] inline void PrefetchColumnsBehind(const uint8_t* columns,
                                                         size_t column_stride, size_t half) {
  constexpr size_t kColumnBytes = kWideTransposeRows / 2;
  constexpr size_t kLines = kToRowsCols * kColumnBytes / 2 / kLineBytes;
  if (column_stride != kColumnBytes) return;
  PrefetchRows(columns + kToRowsCols * column_stride + half * kLines * kLineBytes, kLineBytes,
               kLines, 1);
}

template <typename Instructions>
void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                   uint8_t* columns, size_t column_stride) {
  if (cols < kToColumnsCols) {
    return kWideNibbleTransposeScalar.rows_to_columns(rows, row_bytes, cols, mask, columns,
                                                      column_stride);
  }
  const __m256i masks = _mm256_set1_epi8(static_cast<char>(mask));
  for (size_t next = 0; next < cols; next += kToColumnsCols) {
    const size_t k = BlockStart(next, cols, kToColumnsCols);
    PrefetchRowsBehind(rows + k / 2, row_bytes);
    TransposeBlock<Instructions, Swap::kFirst>(rows + k / 2, row_bytes,
                                               kWideTransposeRows / 2 * row_bytes,
                                               columns + k * column_stride, column_stride, masks);
  }
}

template <typename Instructions>
void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, uint8_t mask,
                   size_t row_bytes, uint8_t* rows) {
  if (cols < kToRowsCols) {
    return kWideNibbleTransposeScalar.columns_to_rows(columns, column_stride, cols, mask, row_bytes,
                                                      rows);
  }
  const __m256i masks = _mm256_set1_epi8(static_cast<char>(mask));
  for (size_t next = 0; next < cols; next += kToRowsCols) {
    const size_t k = BlockStart(next, cols, kToRowsCols);
    const uint8_t* from = columns + k * column_stride;
    uint8_t* to = rows + k / 2;
    PrefetchColumnsBehind(from, column_stride, 0);
    ColumnsToBlock<Instructions>(from, column_stride, row_bytes, to, masks);
    PrefetchColumnsBehind(from, column_stride, 1);
    ColumnsToBlock<Instructions>(from + kLaneBytes, column_stride, row_bytes,
                                 to + kToRowsRows * row_bytes, masks);
  }
}

}  // namespace
}  // namespace prepack

#endif  // PREPACK_KERNELS_NIBBLE_TRANSPOSE_WIDE_BLOCKS_H_
