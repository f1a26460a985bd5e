// AVX2: 16 rows by 32 columns at a time: eight pairs of rows, of which the two lanes hold four
// each. What would stick out at the end is moved back over its neighbour, and writes some bytes
// twice; only fewer than 32 columns are left to the scalar twin.

#include <immintrin.h>

#include "kernels/lines_avx2.h"
#include "kernels/nibble_pairs.h"

namespace prepack {
namespace {

constexpr size_t kCols = 32;
constexpr size_t kBlockRows = 16;
constexpr size_t kApart = 8;  // between the channels of a byte
constexpr size_t kPairs = 4;  // in a lane

// The bytes of four pairs per lane: columns 0 … 15 in `low`, 16 … 31 in `high`.
struct Block {
  __m256i low[kPairs];
  __m256i high[kPairs];
};

[[gnu::always_inline]] inline __m256i LoadLanes(const uint8_t* low, const uint8_t* high) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low))),
      _mm_loadu_si128(reinterpret_cast<const __m128i*>(high)), 1);
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

[[gnu::always_inline]] inline void BlockToPairs(const uint8_t* rows, size_t row_bytes,
                                                uint8_t* pairs) {
  Block block;
  for (size_t i = 0; i < kPairs; ++i) {
    const uint8_t* low = rows + i * row_bytes;
    const uint8_t* high = rows + (i + kPairs) * row_bytes;
    __m256i even = LoadLanes(low, high);
    __m256i odd = LoadLanes(low + kApart * row_bytes, high + kApart * row_bytes);
    SwapNibbles(even, odd);
    block.low[i] = _mm256_unpacklo_epi8(even, odd);
    block.high[i] = _mm256_unpackhi_epi8(even, odd);
  }
  TransposeWords(block.low);
  TransposeWords(block.high);
  for (size_t i = 0; i < kPairs; ++i) {
    uint8_t* to = pairs + i * kPairStepBytes;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), block.low[i]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kPairs * kPairStepBytes), block.high[i]);
  }
}

[[gnu::always_inline]] inline void PairsToBlock(const uint8_t* pairs, size_t row_bytes,
                                                uint8_t* rows) {
  const __m256i by_parity = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  Block block;
  for (size_t i = 0; i < kPairs; ++i) {
    const uint8_t* from = pairs + i * kPairStepBytes;
    block.low[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    block.high[i] =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + kPairs * kPairStepBytes));
  }
  TransposeWords(block.low);
  TransposeWords(block.high);
  for (size_t i = 0; i < kPairs; ++i) {
    const __m256i a = _mm256_shuffle_epi8(block.low[i], by_parity);
    const __m256i b = _mm256_shuffle_epi8(block.high[i], by_parity);
    __m256i even = _mm256_unpacklo_epi64(a, b);
    __m256i odd = _mm256_unpackhi_epi64(a, b);
    SwapNibbles(even, odd);
    uint8_t* low = rows + i * row_bytes;
    uint8_t* high = rows + (i + kPairs) * row_bytes;
    StoreLanes(low, high, even);
    StoreLanes(low + kApart * row_bytes, high + kApart * row_bytes, odd);
  }
}

constexpr size_t kLineCols = 2 * kLineBytes;
constexpr size_t kTileBytes = kPairRows * kLineBytes;

size_t PairBytes(size_t cols) {
  return cols / kPairCols * kPairStepBytes;
}

// Where the next piece of `piece` columns begins.
size_t PieceStart(size_t next, size_t cols, size_t piece) {
  return next < cols - piece ? next : cols - piece;
}

void BlocksToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  for (size_t next = 0; next < cols; next += kCols) {
    const size_t k = PieceStart(next, cols, kCols);
    const uint8_t* from = rows + k / 2;
    uint8_t* to = pairs + PairBytes(k);
    BlockToPairs(from, row_bytes, to);
    BlockToPairs(from + kBlockRows * row_bytes, row_bytes, to + kPairStepBytes / 2);
  }
}

void PairsToBlocks(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  for (size_t next = 0; next < cols; next += kCols) {
    const size_t k = PieceStart(next, cols, kCols);
    const uint8_t* from = pairs + PairBytes(k);
    uint8_t* to = rows + k / 2;
    PairsToBlock(from, row_bytes, to);
    PairsToBlock(from + kPairStepBytes / 2, row_bytes, to + kBlockRows * row_bytes);
  }
}

// By whole lines of the rows, see lines_avx2.h.
void LinesToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  alignas(kLineBytes) uint8_t tile[kTileBytes];
  for (size_t next = 0; next < cols; next += kLineCols) {
    const size_t k = PieceStart(next, cols, kLineCols);
    CopyLines(rows + k / 2, row_bytes, kPairRows, tile, kLineBytes);
    BlocksToPairs(tile, kLineBytes, kLineCols, pairs + PairBytes(k));
  }
}

void PairsToLines(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  alignas(kLineBytes) uint8_t tile[kTileBytes];
  for (size_t next = 0; next < cols; next += kLineCols) {
    const size_t k = PieceStart(next, cols, kLineCols);
    PairsToBlocks(pairs + PairBytes(k), kLineCols, kLineBytes, tile);
    CopyLines(tile, kLineBytes, kPairRows, rows + k / 2, row_bytes);
  }
}

void RowsToPairs(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* pairs) {
  if (cols < kCols) return kNibblePairsScalar.rows_to_pairs(rows, row_bytes, cols, pairs);
  if (cols < kLineCols) return BlocksToPairs(rows, row_bytes, cols, pairs);
  LinesToPairs(rows, row_bytes, cols, pairs);
}

void PairsToRows(const uint8_t* pairs, size_t cols, size_t row_bytes, uint8_t* rows) {
  if (cols < kCols) return kNibblePairsScalar.pairs_to_rows(pairs, cols, row_bytes, rows);
  if (cols < kLineCols) return PairsToBlocks(pairs, cols, row_bytes, rows);
  PairsToLines(pairs, cols, row_bytes, rows);
}

}  // namespace

const NibblePairs kNibblePairsAvx2 = {RowsToPairs, PairsToRows};

}  // namespace prepack
