// AVX2: 32 columns at a time; the two lanes of a register hold rows n and n + 8. Where rows lie two
// KiB or a multiple of that apart, 16 or all 32 of them share a set of the L1 cache: they go
// through a tile (kernels/runs.h), which at other distances would cost more than it saves.

#include "prepack/kernels/nibble_halves.h"
#include "prepack/kernels/runs.h"
#include "prepack/kernels/ymm.h"

namespace prepack {
namespace {

constexpr size_t kCols = 32;
constexpr size_t kLaneRows = 8;
constexpr size_t kApart = 16;  // between the rows of a byte
constexpr size_t kColumnsOfHalf = kCols / 4;

constexpr size_t kRunBytes = 256;  // of a row
constexpr size_t kRunCols = 2 * kRunBytes;
constexpr size_t kCrowdedStride = 2048;

bool AreCrowded(size_t row_bytes, size_t cols) {
  return row_bytes % kCrowdedStride == 0 && cols >= kRunCols;
}

// Calls work(first byte of a run in its row, first column) for each run. One that would stick out
// at the end is moved back over its neighbour, and does some columns twice.
template <typename Work>
void ForRuns(size_t cols, const Work& work) {
  for (size_t next = 0; next < cols; next += kRunCols) {
    const size_t k = next < cols - kRunCols ? next : cols - kRunCols;
    work(k / 2, k);
  }
}

// Eight registers of 16-bit units, lane by lane: unit a of register b becomes unit b of register a.
[[gnu::always_inline]] inline void Rotate(__m256i (&reg)[kLaneRows]) {
  __m256i next[kLaneRows];
#pragma GCC unroll 4
  for (size_t i = 0; i < kLaneRows / 2; ++i) {
    next[2 * i] = _mm256_unpacklo_epi16(reg[i], reg[i + kLaneRows / 2]);
    next[2 * i + 1] = _mm256_unpackhi_epi16(reg[i], reg[i + kLaneRows / 2]);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kLaneRows; ++i) reg[i] = next[i];
}

[[gnu::always_inline]] inline void Transpose(__m256i (&reg)[kLaneRows]) {
  Rotate(reg);
  Rotate(reg);
  Rotate(reg);
}

// Exchanges the high nibbles of `a` with the low nibbles of `b`, byte by byte: two rows become
// their even and their odd columns. Its own inverse.
[[gnu::always_inline]] inline void SwapNibbles(__m256i& a, __m256i& b) {
  const __m256i low_halves = _mm256_set1_epi8(0x0F);
  const __m256i moved = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(a, 4), b), low_halves);
  b = _mm256_xor_si256(b, moved);
  a = _mm256_xor_si256(a, _mm256_slli_epi16(moved, 4));
}

[[gnu::always_inline]] inline void StoreLanesOf(uint8_t* low, uint8_t* high, __m256i value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm256_castsi256_si128(value));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm256_extracti128_si256(value, 1));
}

void ToHalves(const uint8_t* rows, size_t row_bytes, uint8_t* halves) {
  __m256i first[kLaneRows];
  __m256i second[kLaneRows];
#pragma GCC unroll 8
  for (size_t n = 0; n < kLaneRows; ++n) {
    const uint8_t* row = rows + n * row_bytes;
    __m256i even = LoadLanes(row, row + kLaneRows * row_bytes);
    __m256i odd = LoadLanes(row + kApart * row_bytes, row + (kApart + kLaneRows) * row_bytes);
    SwapNibbles(even, odd);
    first[n] = _mm256_unpacklo_epi8(even, odd);
    second[n] = _mm256_unpackhi_epi8(even, odd);
  }
  Transpose(first);
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) Store(halves + i * kHalvesRows, first[i]);
  Transpose(second);
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) {
    Store(halves + (kColumnsOfHalf + i) * kHalvesRows, second[i]);
  }
}

void ToRows(const uint8_t* halves, size_t row_bytes, uint8_t* rows) {
  const __m256i by_parity = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  __m256i first[kLaneRows];
  __m256i second[kLaneRows];
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) first[i] = Load(halves + i * kHalvesRows);
  Transpose(first);
#pragma GCC unroll 8
  for (size_t i = 0; i < kColumnsOfHalf; ++i) {
    second[i] = Load(halves + (kColumnsOfHalf + i) * kHalvesRows);
  }
  Transpose(second);
#pragma GCC unroll 8
  for (size_t n = 0; n < kLaneRows; ++n) {
    const __m256i a = _mm256_shuffle_epi8(first[n], by_parity);
    const __m256i b = _mm256_shuffle_epi8(second[n], by_parity);
    __m256i even = _mm256_unpacklo_epi64(a, b);
    __m256i odd = _mm256_unpackhi_epi64(a, b);
    SwapNibbles(even, odd);
    uint8_t* row = rows + n * row_bytes;
    StoreLanesOf(row, row + kLaneRows * row_bytes, even);
    StoreLanesOf(row + kApart * row_bytes, row + (kApart + kLaneRows) * row_bytes, odd);
  }
}

void NearRowsToHalves(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* halves) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) ToHalves(rows + k / 2, row_bytes, halves + HalvesBytes(k));
  kNibbleHalvesScalar.rows_to_halves(rows + k / 2, row_bytes, cols - k, halves + HalvesBytes(k));
}

void HalvesToNearRows(const uint8_t* halves, size_t cols, size_t row_bytes, uint8_t* rows) {
  size_t k = 0;
  for (; k + kCols <= cols; k += kCols) ToRows(halves + HalvesBytes(k), row_bytes, rows + k / 2);
  kNibbleHalvesScalar.halves_to_rows(halves + HalvesBytes(k), cols - k, row_bytes, rows + k / 2);
}

void RowsToHalves(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* halves) {
  if (!AreCrowded(row_bytes, cols)) return NearRowsToHalves(rows, row_bytes, cols, halves);
  alignas(kLineBytes) uint8_t tile[kHalvesRows * kRunBytes];
  ForRuns(cols, [&](size_t byte, size_t k) {
    CopyRuns<kRunBytes>(rows + byte, row_bytes, kHalvesRows, tile, kRunBytes);
    NearRowsToHalves(tile, kRunBytes, kRunCols, halves + HalvesBytes(k));
  });
}

void HalvesToRows(const uint8_t* halves, size_t cols, size_t row_bytes, uint8_t* rows) {
  if (!AreCrowded(row_bytes, cols)) return HalvesToNearRows(halves, cols, row_bytes, rows);
  alignas(kLineBytes) uint8_t tile[kHalvesRows * kRunBytes];
  ForRuns(cols, [&](size_t byte, size_t k) {
    HalvesToNearRows(halves + HalvesBytes(k), kRunCols, kRunBytes, tile);
    CopyRuns<kRunBytes>(tile, kRunBytes, kHalvesRows, rows + byte, row_bytes);
  });
}

}  // namespace

const NibbleHalves kNibbleHalvesAvx2 = {RowsToHalves, HalvesToRows};

}  // namespace prepack
