// AVX2: blocks of 1 KiB, of which the two lanes hold what lies half a block apart: 64 rows by 32
// columns on the way to columns, and 32 rows by 64 columns on the way back, so that what is written
// of a column or of a row is always a whole register. A block that would stick out at the end is
// moved back over its neighbour, and writes some columns twice; only fewer columns than a block has
// are left to the scalar twin.
//
// Loops over registers are unrolled by name: the compiler leaves some of them rolled, and then does
// more arithmetic on addresses than on nibbles.

#include <immintrin.h>

#include "kernels/nibble_transpose_wide.h"

namespace prepack {
namespace {

constexpr size_t kToColumnsCols = 32;
constexpr size_t kToRowsCols = 64;
constexpr size_t kToRowsRows = 32;
constexpr size_t kLaneBytes = 16;

// Four of sixteen registers: few enough to stay registers.
constexpr size_t kQuad = 4;

struct Quad {
  __m256i reg[kQuad];
};

// Bytes of every second column, between the two steps of a transpose.
struct Block {
  Quad quads[kQuad];
};

[[gnu::always_inline]] inline void Store(uint8_t* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

[[gnu::always_inline]] inline __m256i LoadLanes(const uint8_t* low, const uint8_t* high) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(__m256i& a, __m256i& b) {
  const __m256i low_halves = _mm256_set1_epi8(0x0F);
  const __m256i moved = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(a, 4), b), low_halves);
  b = _mm256_xor_si256(b, moved);
  a = _mm256_xor_si256(a, _mm256_slli_epi16(moved, 4));
}

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

void BlockToColumns(const uint8_t* rows, size_t row_bytes, uint8_t* columns, size_t column_stride,
                    uint8_t mask) {
  const __m256i masks = _mm256_set1_epi8(static_cast<char>(mask));
  const size_t apart = kWideTransposeRows / 2 * row_bytes;
  Block evens;
  Block odds;
#pragma GCC unroll 4
  for (size_t i = 0; i < kQuad; ++i) {
    Quad even;
    Quad odd;
#pragma GCC unroll 4
    for (size_t j = 0; j < kQuad; ++j) {
      const uint8_t* row = rows + 2 * (kQuad * j + i) * row_bytes;
      even.reg[j] = LoadLanes(row, row + apart);
      odd.reg[j] = LoadLanes(row + row_bytes, row + row_bytes + apart);
      SwapNibbles(even.reg[j], odd.reg[j]);
    }
    Spread(even, i, evens);
    Spread(odd, i, odds);
  }
#pragma GCC unroll 4
  for (size_t j = 0; j < kQuad; ++j) {
    const Quad even = Rotate(evens.quads[j]);
    const Quad odd = Rotate(odds.quads[j]);
#pragma GCC unroll 4
    for (size_t i = 0; i < kQuad; ++i) {
      uint8_t* column = columns + 2 * (kQuad * j + i) * column_stride;
      Store(column, _mm256_xor_si256(even.reg[i], masks));
      Store(column + column_stride, _mm256_xor_si256(odd.reg[i], masks));
    }
  }
}

void ColumnsToBlock(const uint8_t* columns, size_t column_stride, size_t row_bytes, uint8_t* rows,
                    uint8_t mask) {
  const __m256i masks = _mm256_set1_epi8(static_cast<char>(mask));
  const size_t apart = kToRowsCols / 2 * column_stride;
  Block evens;
  Block odds;
#pragma GCC unroll 4
  for (size_t i = 0; i < kQuad; ++i) {
    Quad even;
    Quad odd;
#pragma GCC unroll 4
    for (size_t j = 0; j < kQuad; ++j) {
      const uint8_t* column = columns + 2 * (kQuad * j + i) * column_stride;
      even.reg[j] = LoadLanes(column, column + apart);
      odd.reg[j] = LoadLanes(column + column_stride, column + column_stride + apart);
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
      SwapNibbles(even.reg[i], odd.reg[i]);
      uint8_t* row = rows + 2 * (kQuad * j + i) * row_bytes;
      Store(row, _mm256_xor_si256(even.reg[i], masks));
      Store(row + row_bytes, _mm256_xor_si256(odd.reg[i], masks));
    }
  }
}

// Where the next block begins.
size_t BlockStart(size_t next, size_t cols, size_t block_cols) {
  return next < cols - block_cols ? next : cols - block_cols;
}

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                   uint8_t* columns, size_t column_stride) {
  if (cols < kToColumnsCols) {
    return kWideNibbleTransposeScalar.rows_to_columns(rows, row_bytes, cols, mask, columns,
                                                      column_stride);
  }
  for (size_t next = 0; next < cols; next += kToColumnsCols) {
    const size_t k = BlockStart(next, cols, kToColumnsCols);
    BlockToColumns(rows + k / 2, row_bytes, columns + k * column_stride, column_stride, mask);
  }
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, uint8_t mask,
                   size_t row_bytes, uint8_t* rows) {
  if (cols < kToRowsCols) {
    return kWideNibbleTransposeScalar.columns_to_rows(columns, column_stride, cols, mask, row_bytes,
                                                      rows);
  }
  for (size_t next = 0; next < cols; next += kToRowsCols) {
    const size_t k = BlockStart(next, cols, kToRowsCols);
    const uint8_t* from = columns + k * column_stride;
    uint8_t* to = rows + k / 2;
    ColumnsToBlock(from, column_stride, row_bytes, to, mask);
    ColumnsToBlock(from + kLaneBytes, column_stride, row_bytes, to + kToRowsRows * row_bytes, mask);
  }
}

}  // namespace

const WideNibbleTranspose kWideNibbleTransposeAvx2 = {RowsToColumns, ColumnsToRows};

}  // namespace prepack
