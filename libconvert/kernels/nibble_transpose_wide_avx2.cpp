// AVX2: 64 rows by 32 columns at a time, the lanes holding rows that lie 32 apart. A block that
// would stick out at the end is moved back over its neighbour, and writes some columns twice; only
// fewer than 32 columns are left to the scalar twin.

#include <immintrin.h>

#include "kernels/nibble_transpose_wide.h"

namespace prepack {
namespace {

constexpr size_t kCols = 32;
constexpr size_t kLaneRows = kWideTransposeRows / 2;

// Four of sixteen registers: few enough to stay registers.
constexpr size_t kQuad = 4;

struct Quad {
  __m256i reg[kQuad];
};

// Bytes of every second column, between the two steps of a transpose.
struct Block {
  Quad quads[kQuad];
};

[[gnu::always_inline]] inline __m256i Load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

[[gnu::always_inline]] inline void Store(uint8_t* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

[[gnu::always_inline]] inline __m256i LoadRow(const uint8_t* row, size_t row_bytes) {
  const auto* low = reinterpret_cast<const __m128i*>(row);
  const auto* high = reinterpret_cast<const __m128i*>(row + kLaneRows * row_bytes);
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)),
                                 _mm_loadu_si128(high), 1);
}

[[gnu::always_inline]] inline void StoreRow(uint8_t* row, size_t row_bytes, __m256i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(row), _mm256_castsi256_si128(value));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(row + kLaneRows * row_bytes),
                   _mm256_extracti128_si256(value, 1));
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
  for (size_t j = 0; j < kQuad; ++j) block.quads[j].reg[i] = out.reg[j];
}
// then of each of these, which makes registers 4j … 4j + 3.

void BlockToColumns(const uint8_t* rows, size_t row_bytes, uint8_t* columns, size_t column_stride,
                    uint8_t mask) {
  const __m256i masks = _mm256_set1_epi8(static_cast<char>(mask));
  Block evens;
  Block odds;
  for (size_t i = 0; i < kQuad; ++i) {
    Quad even;
    Quad odd;
    for (size_t j = 0; j < kQuad; ++j) {
      const uint8_t* pair = rows + 2 * (kQuad * j + i) * row_bytes;
      even.reg[j] = LoadRow(pair, row_bytes);
      odd.reg[j] = LoadRow(pair + row_bytes, row_bytes);
      SwapNibbles(even.reg[j], odd.reg[j]);
    }
    Spread(even, i, evens);
    Spread(odd, i, odds);
  }
  for (size_t j = 0; j < kQuad; ++j) {
    const Quad even = Rotate(evens.quads[j]);
    const Quad odd = Rotate(odds.quads[j]);
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
  Block evens;
  Block odds;
  for (size_t i = 0; i < kQuad; ++i) {
    Quad even;
    Quad odd;
    for (size_t j = 0; j < kQuad; ++j) {
      const uint8_t* column = columns + 2 * (kQuad * j + i) * column_stride;
      even.reg[j] = Load(column);
      odd.reg[j] = Load(column + column_stride);
    }
    Spread(even, i, evens);
    Spread(odd, i, odds);
  }
  for (size_t j = 0; j < kQuad; ++j) {
    Quad even = Rotate(evens.quads[j]);
    Quad odd = Rotate(odds.quads[j]);
    for (size_t i = 0; i < kQuad; ++i) {
      SwapNibbles(even.reg[i], odd.reg[i]);
      uint8_t* pair = rows + 2 * (kQuad * j + i) * row_bytes;
      StoreRow(pair, row_bytes, _mm256_xor_si256(even.reg[i], masks));
      StoreRow(pair + row_bytes, row_bytes, _mm256_xor_si256(odd.reg[i], masks));
    }
  }
}

// Where the next block begins.
size_t BlockStart(size_t next, size_t cols) {
  return next < cols - kCols ? next : cols - kCols;
}

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                   uint8_t* columns, size_t column_stride) {
  if (cols < kCols) {
    return kWideNibbleTransposeScalar.rows_to_columns(rows, row_bytes, cols, mask, columns,
                                                      column_stride);
  }
  for (size_t next = 0; next < cols; next += kCols) {
    const size_t k = BlockStart(next, cols);
    BlockToColumns(rows + k / 2, row_bytes, columns + k * column_stride, column_stride, mask);
  }
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, uint8_t mask,
                   size_t row_bytes, uint8_t* rows) {
  if (cols < kCols) {
    return kWideNibbleTransposeScalar.columns_to_rows(columns, column_stride, cols, mask, row_bytes,
                                                      rows);
  }
  for (size_t next = 0; next < cols; next += kCols) {
    const size_t k = BlockStart(next, cols);
    ColumnsToBlock(columns + k * column_stride, column_stride, row_bytes, rows + k / 2, mask);
  }
}

}  // namespace

const WideNibbleTranspose kWideNibbleTransposeAvx2 = {RowsToColumns, ColumnsToRows};

}  // namespace prepack
