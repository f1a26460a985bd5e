// AVX-512: tiles of 32 rows by 32 columns to pairs, as in nibble_pairs_avx2.cpp with four lanes;
// 128 columns at a time back. What is no multiple of these is left to AVX2.
//
// Comments give the place of a byte as the bits of its index: n4 … n0 are those of the row, k6 … k0
// those of the column. A place is (register; lane; byte in the lane). n3 tells the halves of a byte
// apart.

#include "kernels/nibble_pairs.h"
#include "kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kCols = 32;  // of a tile
constexpr size_t kBackCols = 128;
constexpr size_t kApart = 8;                    // between the rows of a byte
constexpr size_t kPairs = 4;                    // in a lane
constexpr size_t kLaneRows[] = {0, 4, 16, 20};  // the first row of each lane, n4 n2
constexpr size_t kLaneBytes = 16;

// Of a row; with what is made of it, a tile of them fits into an L1 cache.
constexpr size_t kRunBytes = 256;
constexpr size_t kRunCols = 2 * kRunBytes;

// (n1 n0; n4 n2; k3 k2 k1 k0) for k4 = 0 and for k4 = 1
struct Tile {
  __m512i low[kPairs];
  __m512i high[kPairs];
};

// Word a of register b becomes word b of register a, lane by lane.
[[gnu::always_inline]] inline void TransposeWords(__m512i (&reg)[kPairs]) {
  RotateIndex<4>(reg);
  RotateIndex<4>(reg);
}

// Sums of codes.
struct Sums {
  __m512i low = _mm512_setzero_si512();   // of rows with n3 = 0, in the order n4 n2 n1 n0
  __m512i high = _mm512_setzero_si512();  // n3 = 1
};

// Adds up each two of unsigned bytes, and of 16 bits.
[[gnu::always_inline]] inline __m512i AddTwos(__m512i bytes) {
  return _mm512_maddubs_epi16(bytes, _mm512_set1_epi8(1));
}
[[gnu::always_inline]] inline __m512i AddFours(__m512i twos) {
  return _mm512_madd_epi16(twos, _mm512_set1_epi16(1));
}

// The sum of a row of low halves is that of their bytes; of high halves, what is left of that of
// whole bytes.
[[gnu::always_inline]] inline void AddCodes(const Tile& tile, Sums& sums) {
  __m512i low = _mm512_setzero_si512();    // in bytes, which hold eight codes of up to 15
  __m512i total = _mm512_setzero_si512();  // in twos of bytes
  for (size_t i = 0; i < 2 * kPairs; ++i) {
    const __m512i codes = i < kPairs ? tile.low[i] : tile.high[i - kPairs];
    low = _mm512_add_epi8(low, _mm512_and_si512(codes, _mm512_set1_epi8(0x0F)));
    total = _mm512_add_epi16(total, AddTwos(codes));
  }
  const __m512i of_low = AddTwos(low);
  const __m512i of_high = _mm512_srli_epi16(_mm512_sub_epi16(total, of_low), 4);
  sums.low = _mm512_add_epi32(sums.low, AddFours(of_low));
  sums.high = _mm512_add_epi32(sums.high, AddFours(of_high));
}

// The rows `row` of all lanes.
[[gnu::always_inline]] inline __m512i LoadRow(const uint8_t* rows, size_t row_bytes, size_t row) {
  const uint8_t* from = rows + row * row_bytes;
  return JoinLanes(
      LoadLane(from + kLaneRows[0] * row_bytes), LoadLane(from + kLaneRows[1] * row_bytes),
      LoadLane(from + kLaneRows[2] * row_bytes), LoadLane(from + kLaneRows[3] * row_bytes));
}

[[gnu::always_inline]] inline void TileToPairs(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* pairs, Sums& sums) {
  Tile tile;
  for (size_t i = 0; i < kPairs; ++i) {
    __m512i even = LoadRow(rows, row_bytes, i);
    __m512i odd = LoadRow(rows, row_bytes, i + kApart);
    SwapNibbles(even, odd);  // now the even columns of both rows, and the odd ones
    tile.low[i] = UnpackLow<1>(even, odd);
    tile.high[i] = UnpackHigh<1>(even, odd);
  }
  TransposeWords(tile.low);
  TransposeWords(tile.high);
  for (size_t i = 0; i < kPairs; ++i) {
    Store(pairs + i * kPairStepBytes, tile.low[i]);
    Store(pairs + (i + kPairs) * kPairStepBytes, tile.high[i]);
  }
  AddCodes(tile, sums);
}

void RowsToBlock(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  Sums sums;
  for (size_t k = 0; k < cols; k += kCols) {
    TileToPairs(rows + k / 2, row_bytes, pairs + PairCodeBytes(k), sums);
  }
  uint8_t* to = pairs + PairCodeBytes(cols);
  Store(to, _mm512_shuffle_i32x4(sums.low, sums.high, 0x44));  // n4 = 0
  Store(to + kZmmBytes, _mm512_shuffle_i32x4(sums.low, sums.high, 0xEE));
}

// 128 columns of the rows of a lane, and of those that share bytes with them.
[[gnu::always_inline]] inline void PairsToEightRows(const uint8_t* pairs, size_t row_bytes,
                                                    uint8_t* rows) {
  const __m512i by_parity =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  __m512i reg[2 * kPairs];
  for (size_t i = 0; i < 2 * kPairs; ++i) {  // (k4 k3 k2; k6 k5; n1 n0 k1 k0)
    const __m512i codes = LoadLanes(pairs + i * kPairStepBytes, PairCodeBytes(kCols));
    reg[i] = _mm512_shuffle_epi8(codes, by_parity);  // (…; k0 n1 n0 k1)
  }
  for (size_t i = 0; i < 3; ++i) RotateIndex<2>(reg);  // (k0 n1 n0; k6 k5; k4 k3 k2 k1)
  for (size_t i = 0; i < kPairs; ++i) {
    __m512i even = reg[i];
    __m512i odd = reg[i + kPairs];
    SwapNibbles(even, odd);
    Store(rows + i * row_bytes, even);
    Store(rows + (i + kApart) * row_bytes, odd);
  }
}

void BlockToRows(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t k = 0; k < cols; k += kBackCols) {
    const uint8_t* from = pairs + PairCodeBytes(k);
    for (size_t lane = 0; lane < 4; ++lane) {
      PairsToEightRows(from + lane * kLaneBytes, row_bytes,
                       rows + kLaneRows[lane] * row_bytes + k / 2);
    }
  }
}

void RowsToBlocks(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                  uint8_t* pairs) {
  for (size_t block = 0; block < blocks; ++block) {
    RowsToBlock(rows + block * cols / 2, row_bytes, cols, pairs + block * PairBlockBytes(cols));
  }
}

// Do the rows lie far apart, and are they long enough to go through a tile by runs, which hold
// whole blocks?
bool ByRuns(size_t row_bytes, size_t cols, size_t blocks) {
  return row_bytes > kRunBytes && kRunCols % cols == 0 && blocks * cols >= kRunCols;
}

void CopyRuns(const uint8_t* rows, size_t row_bytes, uint8_t* tile) {
  for (size_t n = 0; n < kPairRows; ++n) {
    for (size_t i = 0; i < kRunBytes; i += kZmmBytes) {
      Store(tile + n * kRunBytes + i, Load(rows + n * row_bytes + i));
    }
  }
}

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                 uint8_t* pairs) {
  if (cols % kCols != 0) {
    return kNibblePairsAvx2.rows_to_pairs(rows, row_bytes, cols, blocks, pairs);
  }
  if (!ByRuns(row_bytes, cols, blocks)) return RowsToBlocks(rows, row_bytes, cols, blocks, pairs);
  alignas(kZmmBytes) uint8_t tile[kPairRows * kRunBytes];
  const size_t run = kRunCols / cols;
  for (size_t next = 0; next < blocks; next += run) {
    // One that would stick out at the end is moved back over its neighbour, and writes some blocks
    // twice.
    const size_t block = next < blocks - run ? next : blocks - run;
    CopyRuns(rows + block * cols / 2, row_bytes, tile);
    RowsToBlocks(tile, kRunBytes, cols, run, pairs + block * PairBlockBytes(cols));
  }
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  if (cols % kBackCols != 0) {
    return kNibblePairsAvx2.pairs_to_rows(pairs, cols, blocks, row_bytes, rows);
  }
  for (size_t block = 0; block < blocks; ++block) {
    BlockToRows(pairs + block * PairBlockBytes(cols), cols, row_bytes, rows + block * cols / 2);
  }
}

}  // namespace

const NibblePairs kNibblePairsAvx512 = {RowsToPairs, PairsToRows};

}  // namespace prepack
