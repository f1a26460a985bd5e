// AVX2: tiles of 16 rows by 32 columns: eight pairs of rows, of which the two lanes hold four each.
// The sums are taken while the codes are in registers. Blocks of no whole number of tiles are left
// to the scalar twin: few checkpoints have such groups.

#include "prepack/kernels/nibble_pairs.h"
#include "prepack/kernels/runs.h"
#include "prepack/kernels/ymm.h"

namespace prepack {
namespace {

constexpr size_t kCols = 32;  // of a tile
constexpr size_t kTileRows = 16;
constexpr size_t kApart = 8;  // between the channels of a byte
constexpr size_t kPairs = 4;  // in a lane

// Of a row; with what is made of it, a tile of them fits into an L1 cache.
constexpr size_t kRunBytes = 256;
constexpr size_t kRunCols = 2 * kRunBytes;

// The bytes of four pairs per lane: columns 0 … 15 in `low`, 16 … 31 in `high`.
struct Tile {
  __m256i low[kPairs];
  __m256i high[kPairs];
};

// Blending leaves the units that shuffle to what follows; inserting would take one of them.
[[gnu::always_inline]] inline __m256i BlendLanes(const uint8_t* low, const uint8_t* high) {
  return _mm256_blend_epi32(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(high))), 0xF0);
}

[[gnu::always_inline]] inline void StoreLanes(uint8_t* low, uint8_t* high, __m256i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(value));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(value, 1));
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(__m256i& a, __m256i& b) {
  const __m256i low_halves = _mm256_set1_epi8(0x0F);
  const __m256i moved = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(a, 4), b), low_halves);
  b = _mm256_xor_si256(b, moved);
  a = _mm256_xor_si256(a, _mm256_slli_epi16(moved, 4));
}

// Word a of register b becomes word b of register a, lane by lane. Its own inverse.
[[gnu::always_inline]] inline void TransposeWords(__m256i (&reg)[kPairs]) {
  const __m256i a = _mm256_unpacklo_epi32(reg[0], reg[1]);
  const __m256i b = _mm256_unpackhi_epi32(reg[0], reg[1]);
  const __m256i c = _mm256_unpacklo_epi32(reg[2], reg[3]);
  const __m256i d = _mm256_unpackhi_epi32(reg[2], reg[3]);
  reg[0] = _mm256_unpacklo_epi64(a, c);
  reg[1] = _mm256_unpackhi_epi64(a, c);
  reg[2] = _mm256_unpacklo_epi64(b, d);
  reg[3] = _mm256_unpackhi_epi64(b, d);
}

// Sums for 16 rows of a block, in 16 bits, each of a half of four columns.
struct Sums {
  __m256i low = _mm256_setzero_si256();    // of the codes of rows 0 … 7, which are low halves
  __m256i total = _mm256_setzero_si256();  // of whole bytes
};
static_assert(kMostPairCols / 2 * 0xFF <= 0xFFFF, "totals fit into 16 bits");

// Adds up each two of unsigned bytes, and of 16 bits.
[[gnu::always_inline]] inline __m256i AddTwos(__m256i bytes) {
  return _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
}
[[gnu::always_inline]] inline __m256i AddFours(__m256i twos) {
  return _mm256_madd_epi16(twos, _mm256_set1_epi16(1));
}

[[gnu::always_inline]] inline void AddCodes(const Tile& tile, Sums& sums) {
  __m256i low = _mm256_setzero_si256();  // in bytes, which hold eight codes of up to 15
  for (size_t i = 0; i < kPairs; ++i) {
    for (const __m256i codes : {tile.low[i], tile.high[i]}) {
      low = _mm256_add_epi8(low, _mm256_and_si256(codes, _mm256_set1_epi8(0x0F)));
      sums.total = _mm256_add_epi16(sums.total, AddTwos(codes));
    }
  }
  sums.low = _mm256_add_epi16(sums.low, AddTwos(low));
}

// Of rows 0 … 7, then of rows 8 … 15: 16 times those are what low halves leave of whole bytes.
[[gnu::always_inline]] inline void StoreSums(const Sums& sums, uint8_t* to) {
  const __m256i high = _mm256_srli_epi16(_mm256_sub_epi16(sums.total, sums.low), 4);
  Store(to, AddFours(sums.low));
  Store(to + sizeof high, AddFours(high));
}

[[gnu::always_inline]] inline void TileToPairs(const uint8_t* rows, size_t row_bytes,
                                               uint8_t* pairs, Sums& sums) {
  Tile tile;
  for (size_t i = 0; i < kPairs; ++i) {
    const uint8_t* low = rows + i * row_bytes;
    const uint8_t* high = rows + (i + kPairs) * row_bytes;
    __m256i even = BlendLanes(low, high);
    __m256i odd = BlendLanes(low + kApart * row_bytes, high + kApart * row_bytes);
    SwapNibbles(even, odd);
    tile.low[i] = _mm256_unpacklo_epi8(even, odd);
    tile.high[i] = _mm256_unpackhi_epi8(even, odd);
  }
  TransposeWords(tile.low);
  TransposeWords(tile.high);
  for (size_t i = 0; i < kPairs; ++i) {
    uint8_t* to = pairs + i * kPairStepBytes;
    Store(to, tile.low[i]);
    Store(to + kPairs * kPairStepBytes, tile.high[i]);
  }
  AddCodes(tile, sums);
}

[[gnu::always_inline]] inline void PairsToTile(const uint8_t* pairs, size_t row_bytes,
                                               uint8_t* rows) {
  const __m256i by_parity = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  Tile tile;
  for (size_t i = 0; i < kPairs; ++i) {
    const uint8_t* from = pairs + i * kPairStepBytes;
    tile.low[i] = Load(from);
    tile.high[i] = Load(from + kPairs * kPairStepBytes);
  }
  TransposeWords(tile.low);
  TransposeWords(tile.high);
  for (size_t i = 0; i < kPairs; ++i) {
    const __m256i a = _mm256_shuffle_epi8(tile.low[i], by_parity);
    const __m256i b = _mm256_shuffle_epi8(tile.high[i], by_parity);
    __m256i even = _mm256_unpacklo_epi64(a, b);
    __m256i odd = _mm256_unpackhi_epi64(a, b);
    SwapNibbles(even, odd);
    uint8_t* low = rows + i * row_bytes;
    uint8_t* high = rows + (i + kPairs) * row_bytes;
    StoreLanes(low, high, even);
    StoreLanes(low + kApart * row_bytes, high + kApart * row_bytes, odd);
  }
}

void RowsToBlock(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  Sums upper;
  Sums lower;
  for (size_t k = 0; k < cols; k += kCols) {
    const uint8_t* from = rows + k / 2;
    uint8_t* to = pairs + PairCodeBytes(k);
    TileToPairs(from, row_bytes, to, upper);
    TileToPairs(from + kTileRows * row_bytes, row_bytes, to + kPairStepBytes / 2, lower);
  }
  uint8_t* to = pairs + PairCodeBytes(cols);
  StoreSums(upper, to);
  StoreSums(lower, to + kTileRows * sizeof(int32_t));
}

void BlockToRows(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t k = 0; k < cols; k += kCols) {
    const uint8_t* from = pairs + PairCodeBytes(k);
    uint8_t* to = rows + k / 2;
    PairsToTile(from, row_bytes, to);
    PairsToTile(from + kPairStepBytes / 2, row_bytes, to + kTileRows * row_bytes);
  }
}

void RowsToBlocks(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                  uint8_t* pairs) {
  for (size_t block = 0; block < blocks; ++block) {
    RowsToBlock(rows + block * cols / 2, row_bytes, cols, pairs + block * PairBlockBytes(cols));
  }
}

void BlocksToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                  uint8_t* rows) {
  for (size_t block = 0; block < blocks; ++block) {
    BlockToRows(pairs + block * PairBlockBytes(cols), cols, row_bytes, rows + block * cols / 2);
  }
}

// Do the rows lie far apart, and are they long enough to go through a tile by runs, which hold
// whole blocks?
bool ByRuns(size_t row_bytes, size_t cols, size_t blocks) {
  return row_bytes > kRunBytes && kRunCols % cols == 0 && blocks * cols >= kRunCols;
}

// Where the next run begins: one that would stick out at the end is moved back over its neighbour,
// and writes some blocks twice.
size_t RunStart(size_t next, size_t blocks, size_t run) {
  return next < blocks - run ? next : blocks - run;
}

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, size_t blocks,
                 uint8_t* pairs) {
  if (cols % kCols != 0) {
    return kNibblePairsScalar.rows_to_pairs(rows, row_bytes, cols, blocks, pairs);
  }
  if (!ByRuns(row_bytes, cols, blocks)) return RowsToBlocks(rows, row_bytes, cols, blocks, pairs);
  alignas(kLineBytes) uint8_t tile[kPairRows * kRunBytes];
  const size_t run = kRunCols / cols;
  for (size_t next = 0; next < blocks; next += run) {
    const size_t block = RunStart(next, blocks, run);
    CopyRuns<kRunBytes>(rows + block * cols / 2, row_bytes, kPairRows, tile, kRunBytes);
    RowsToBlocks(tile, kRunBytes, cols, run, pairs + block * PairBlockBytes(cols));
  }
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t blocks, size_t row_bytes,
                 uint8_t* rows) {
  if (cols % kCols != 0) {
    return kNibblePairsScalar.pairs_to_rows(pairs, cols, blocks, row_bytes, rows);
  }
  if (!ByRuns(row_bytes, cols, blocks)) return BlocksToRows(pairs, cols, blocks, row_bytes, rows);
  alignas(kLineBytes) uint8_t tile[kPairRows * kRunBytes];
  const size_t run = kRunCols / cols;
  for (size_t next = 0; next < blocks; next += run) {
    const size_t block = RunStart(next, blocks, run);
    BlocksToRows(pairs + block * PairBlockBytes(cols), cols, run, kRunBytes, tile);
    CopyRuns<kRunBytes>(tile, kRunBytes, kPairRows, rows + block * cols / 2, row_bytes);
  }
}

}  // namespace

const NibblePairs kNibblePairsAvx2 = {RowsToPairs, PairsToRows};

}  // namespace prepack
