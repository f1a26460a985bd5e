// AVX-512: blocks of 128 columns, the most that a layout has, in tiles of 16 rows: these fill
// halves of the 64 bytes of each four columns, and each cache line of a row is read, or written,
// once and whole. Other blocks are left to AVX2.
//
// Comments give the place of a byte as the bits of its index: n4 … n0 are those of the row, k6 … k0
// those of the column. A place is (register; lane; byte in the lane). n3 tells the halves of a byte
// apart, n4 the halves of 64 bytes.

#include "prepack/kernels/nibble_pairs.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kCols = 128;     // of a block
constexpr size_t kTileRows = 16;  // n4
constexpr size_t kApart = 8;      // between the rows of a byte
constexpr size_t kQuarter = 4;    // rows of a tile that go through the registers together
constexpr size_t kSteps = 8;      // four columns each, k4 k3 k2
constexpr size_t kHalf = 32;      // bytes
constexpr size_t kRunBlocks = 8;  // see ForTiles

// Exchanges odd lanes of `a` with even lanes of `b`. Its own inverse.
[[gnu::always_inline]] inline void ExchangeLanes(__m512i& a, __m512i& b) {
  const __m512i even = _mm512_mask_shuffle_i64x2(a, 0xCC, b, b, 0xA0);
  b = _mm512_mask_shuffle_i64x2(b, 0x33, a, a, 0xF5);
  a = even;
}

// Adds up each two of unsigned bytes, and of 16 bits.
[[gnu::always_inline]] inline __m512i AddTwos(__m512i bytes) {
  return _mm512_maddubs_epi16(bytes, _mm512_set1_epi8(1));
}
[[gnu::always_inline]] inline __m512i AddFours(__m512i twos) {
  return _mm512_madd_epi16(twos, _mm512_set1_epi16(1));
}

// Sums for the rows of a tile, in the order n2 n1 n0, each in parts.
struct Sums {
  __m512i low = _mm512_setzero_si512();    // of low halves, which hold rows with n3 = 0: in bytes
  __m512i total = _mm512_setzero_si512();  // of whole bytes: in 16 bits

  [[gnu::always_inline]] void Add(__m512i codes) {
    low = _mm512_add_epi8(low, _mm512_and_si512(codes, _mm512_set1_epi8(0x0F)));
    total = _mm512_add_epi16(total, AddTwos(codes));
  }
};
static_assert(kCols / kPairCols / 2 * 0x0F <= 0xFF, "a byte holds what is added to it");

// The sum of a row of high halves is what low halves leave of that of whole bytes.
[[gnu::always_inline]] inline void StoreSums(const Sums& sums, uint8_t* to) {
  const __m512i of_low = AddTwos(sums.low);
  const __m512i of_high = _mm512_srli_epi16(_mm512_sub_epi16(sums.total, of_low), 4);
  const __m512i low = AddFours(of_low);
  const __m512i high = AddFours(of_high);
  Store(to, _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x44),
                             _mm512_shuffle_i32x4(low, high, 0xEE)));
}

// Four registers (n1 n0; k6 n2; k3 k2 k1 k0) to bytes of four columns each.
[[gnu::always_inline]] inline void StoreSteps(__m512i (&reg)[kQuarter], uint8_t* pairs,
                                              Sums& sums) {
  for (size_t i = 0; i < 2; ++i) RotateIndex<4>(reg);  // (k3 k2; k6 n2; n1 n0 k1 k0)
  for (size_t i = 0; i < kQuarter; ++i) {
    uint8_t* to = pairs + i * kPairStepBytes;
    StoreHalves(to, to + PairCodeBytes(kCols / 2), reg[i]);
    sums.Add(reg[i]);
  }
}

// (n3 n1 n0; k6 n2; k4 k3 k2 k1)
[[gnu::always_inline]] inline void RowsToSteps(__m512i (&reg)[2 * kQuarter], uint8_t* pairs,
                                               Sums& sums) {
  __m512i low[kQuarter];   // k4 = 0
  __m512i high[kQuarter];  // k4 = 1
  for (size_t i = 0; i < kQuarter; ++i) {
    SwapNibbles(reg[i], reg[i + kQuarter]);  // now the even columns of both rows, and the odd ones
    low[i] = UnpackLow<1>(reg[i], reg[i + kQuarter]);
    high[i] = UnpackHigh<1>(reg[i], reg[i + kQuarter]);
  }
  StoreSteps(low, pairs, sums);
  StoreSteps(high, pairs + kQuarter * kPairStepBytes, sums);
}

[[gnu::always_inline]] inline void TileToPairs(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* pairs, uint8_t* to_sums) {
  __m512i left[2 * kQuarter];   // k5 = 0
  __m512i right[2 * kQuarter];  // k5 = 1
  for (size_t i = 0; i < 2 * kQuarter; ++i) {
    const uint8_t* from = rows + (i / kQuarter * kApart + i % kQuarter) * row_bytes;
    left[i] = Load(from);
    right[i] = Load(from + kQuarter * row_bytes);
    ExchangeLanes(left[i], right[i]);  // (n3 n1 n0; k6 n2; k4 k3 k2 k1)
  }
  Sums sums;
  RowsToSteps(left, pairs, sums);
  RowsToSteps(right, pairs + PairCodeBytes(kCols / 4), sums);
  StoreSums(sums, to_sums);
}

// (k4 k3 k2; k6 k5; n1 n0 k1 k0) to 128 columns of four rows, and of those that share bytes with
// them.
[[gnu::always_inline]] inline void StepsToRows(__m512i (&reg)[kSteps], size_t row_bytes,
                                               uint8_t* rows) {
  const __m512i by_parity =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  for (__m512i& codes : reg) codes = _mm512_shuffle_epi8(codes, by_parity);  // (…; k0 n1 n0 k1)
  for (size_t i = 0; i < 3; ++i) RotateIndex<2>(reg);  // (k0 n1 n0; k6 k5; k4 k3 k2 k1)
  for (size_t i = 0; i < kQuarter; ++i) {
    __m512i even = reg[i];
    __m512i odd = reg[i + kQuarter];
    SwapNibbles(even, odd);
    Store(rows + i * row_bytes, even);
    Store(rows + (i + kApart) * row_bytes, odd);
  }
}

[[gnu::always_inline]] inline void PairsToTile(const uint8_t* pairs, size_t row_bytes,
                                               uint8_t* rows) {
  __m512i upper[kSteps];  // n2 = 0
  __m512i lower[kSteps];  // n2 = 1
  for (size_t i = 0; i < kSteps; ++i) {
    const uint8_t* left = pairs + i * kPairStepBytes;  // k5 = 0
    const uint8_t* right = left + PairCodeBytes(kCols / 4);
    upper[i] = LoadHalves(left, left + PairCodeBytes(kCols / 2));
    lower[i] = LoadHalves(right, right + PairCodeBytes(kCols / 2));
    ExchangeLanes(upper[i], lower[i]);
  }
  StepsToRows(upper, row_bytes, rows);
  StepsToRows(lower, row_bytes, rows + kQuarter * row_bytes);
}

// The first 16 rows of some blocks, then the others of the same: the fewer rows take turns, the
// better caches follow them. The blocks stay in an L1 cache meanwhile. `work` is to be inlined:
// else constants are loaded for each tile, which costs a tenth.
template <typename Work>
[[gnu::always_inline]] inline void ForTiles(size_t blocks, const Work& work) {
  for (size_t first = 0; first < blocks; first += kRunBlocks) {
    const size_t end = first + kRunBlocks < blocks ? first + kRunBlocks : blocks;
    for (size_t n = 0; n < kPairRows; n += kTileRows) {
      for (size_t block = first; block < end; ++block) work(block, n);
    }
  }
}

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                 uint8_t* pairs) {
  if (cols != kCols) {
    return kNibblePairsAvx2.rows_to_pairs(rows, row_bytes, cols, blocks, pairs);
  }
  ForTiles(
      blocks, [&](size_t block, size_t n) __attribute__((always_inline)) {
        uint8_t* to = pairs + block * PairBlockBytes(kCols);
        TileToPairs(rows + n * row_bytes + block * kCols / 2, row_bytes, to + n / kTileRows * kHalf,
                    to + PairCodeBytes(kCols) + n * sizeof(int32_t));
      });
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  if (cols != kCols) {
    return kNibblePairsAvx2.pairs_to_rows(pairs, cols, blocks, row_bytes, rows);
  }
  ForTiles(
      blocks, [&](size_t block, size_t n) __attribute__((always_inline)) {
        PairsToTile(pairs + block * PairBlockBytes(kCols) + n / kTileRows * kHalf, row_bytes,
                    rows + n * row_bytes + block * kCols / 2);
      });
}

}  // namespace

const NibblePairs kNibblePairsAvx512 = {RowsToPairs, PairsToRows};

}  // namespace prepack
