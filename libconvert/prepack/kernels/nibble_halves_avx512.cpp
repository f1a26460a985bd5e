// AVX-512: 32 rows by 128 columns at a time, so that each cache line of a row is read, or written,
// once and whole: no tile is needed where rows share a set of the cache (kernels/runs.h).
//
// Comments give the place of a byte as the bits of its index: n4 … n0 are those of the row, k6 … k0
// those of the column. A place is (register; lane; byte in the lane). n4 tells the halves of a byte
// apart.

#include "prepack/kernels/nibble_halves.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kCols = 128;
constexpr size_t kTurnRows = 8;  // n2 n1 n0: those that are transposed together
constexpr size_t kApart = 16;    // between the rows of a byte
constexpr size_t kLaneStride = kZmmBytes / 4 * kHalvesRows;  // between the lanes: k6 k5

// Exchanges odd lanes of `a` with even lanes of `b`. Its own inverse.
[[gnu::always_inline]] inline void ExchangeLanes(__m512i& a, __m512i& b) {
  const __m512i even = _mm512_mask_shuffle_i64x2(a, 0xCC, b, b, 0xA0);
  b = _mm512_mask_shuffle_i64x2(b, 0x33, a, a, 0xF5);
  a = even;
}

struct Rows {
  __m512i reg[kTurnRows];
};

// Bytes of even columns and of odd ones to pairs of them: for k1 = 0 and for k1 = 1. Shifts leave
// the units that shuffle to what follows.
[[gnu::always_inline]] inline void PairColumns(__m512i& even, __m512i& odd) {
  const __m512i low_bytes = _mm512_set1_epi16(0x00FF);
  const __m512i first = Select(low_bytes, even, _mm512_slli_epi16(odd, 8));
  odd = Select(low_bytes, _mm512_srli_epi16(even, 8), odd);
  even = first;
}

// Rows n2 n1 n0 of n3 = 0 and of n3 = 1, (n2 n1 n0; k6 k5; k4 k3 k2 k0), to columns.
[[gnu::always_inline]] inline void StoreColumns(Rows& upper, Rows& lower, uint8_t* halves) {
#pragma GCC unroll 3
  for (size_t i = 0; i < 3; ++i) RotateIndex<2>(upper.reg);  // (k4 k3 k2; k6 k5; n2 n1 n0 k0)
#pragma GCC unroll 3
  for (size_t i = 0; i < 3; ++i) RotateIndex<2>(lower.reg);
#pragma GCC unroll 8
  for (size_t i = 0; i < kTurnRows; ++i) {
    __m512i a = upper.reg[i];
    __m512i b = lower.reg[i];
    ExchangeLanes(a, b);  // (k5 k4 k3 k2; k6 n3; n2 n1 n0 k0)
    uint8_t* to = halves + 2 * i * kHalvesRows;
    StoreHalves(to, to + 2 * kLaneStride, a);
    StoreHalves(to + kLaneStride, to + 3 * kLaneStride, b);
  }
}

[[gnu::always_inline]] inline void TileToHalves(const uint8_t* rows, size_t row_bytes,
                                                uint8_t* halves) {
  Rows first[2];   // k1 = 0
  Rows second[2];  // k1 = 1
#pragma GCC unroll 16
  for (size_t n = 0; n < 2 * kTurnRows; ++n) {
    __m512i even = Load(rows + n * row_bytes);
    __m512i odd = Load(rows + (n + kApart) * row_bytes);
    SwapNibbles(even, odd);  // now the even columns of both rows, and the odd ones
    PairColumns(even, odd);
    first[n / kTurnRows].reg[n % kTurnRows] = even;
    second[n / kTurnRows].reg[n % kTurnRows] = odd;
  }
  StoreColumns(first[0], first[1], halves);
  StoreColumns(second[0], second[1], halves + kHalvesRows);
}

// The inverse of StoreColumns.
[[gnu::always_inline]] inline void LoadColumns(const uint8_t* halves, Rows& upper, Rows& lower) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kTurnRows; ++i) {
    const uint8_t* from = halves + 2 * i * kHalvesRows;
    upper.reg[i] = LoadHalves(from, from + 2 * kLaneStride);
    lower.reg[i] = LoadHalves(from + kLaneStride, from + 3 * kLaneStride);
    ExchangeLanes(upper.reg[i], lower.reg[i]);
  }
#pragma GCC unroll 3
  for (size_t i = 0; i < 3; ++i) RotateIndex<2>(upper.reg);
#pragma GCC unroll 3
  for (size_t i = 0; i < 3; ++i) RotateIndex<2>(lower.reg);
}

[[gnu::always_inline]] inline void HalvesToTile(const uint8_t* halves, size_t row_bytes,
                                                uint8_t* rows) {
  Rows first[2];
  Rows second[2];
  LoadColumns(halves, first[0], first[1]);
  LoadColumns(halves + kHalvesRows, second[0], second[1]);
#pragma GCC unroll 16
  for (size_t n = 0; n < 2 * kTurnRows; ++n) {
    __m512i even = first[n / kTurnRows].reg[n % kTurnRows];
    __m512i odd = second[n / kTurnRows].reg[n % kTurnRows];
    PairColumns(even, odd);
    SwapNibbles(even, odd);
    uint8_t* row = rows + n * row_bytes;
    Store(row, even);
    Store(row + kApart * row_bytes, odd);
  }
}

void RowsToHalves(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* halves) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) {
    TileToHalves(rows + k / 2, row_bytes, halves + HalvesBytes(k));
  }
  kNibbleHalvesAvx2.rows_to_halves(rows + k / 2, row_bytes, cols - k, halves + HalvesBytes(k));
}

void HalvesToRows(const uint8_t* halves, size_t cols, size_t row_bytes, uint8_t* rows) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) {
    HalvesToTile(halves + HalvesBytes(k), row_bytes, rows + k / 2);
  }
  kNibbleHalvesAvx2.halves_to_rows(halves + HalvesBytes(k), cols - k, row_bytes, rows + k / 2);
}

}  // namespace

const NibbleHalves kNibbleHalvesAvx512 = {RowsToHalves, HalvesToRows};

}  // namespace prepack
