// AVX2: 32 bytes at a time are summed by the instruction for sums of absolute differences (from
// zero), which takes unsigned bytes: signed ones get 128 added, which is taken off in the end. Four
// rows share the work of adding up what is left in the registers.

#include <cstring>

#include "prepack/kernels/row_sums.h"
#include "prepack/kernels/ymm.h"

namespace prepack {
namespace {

constexpr size_t kVectorBytes = 32;
constexpr size_t kLaneBytes = 16;
constexpr size_t kRowsAtOnce = 4;

// What a vector of zeros counts for.
constexpr size_t kVectorBias = 128 * kVectorBytes;

// The sums of each eight bytes.
[[gnu::always_inline]] inline __m256i SumEights(__m256i bytes) {
  return _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
}

// 16 bytes and 16 zeros.
[[gnu::always_inline]] inline __m256i LoadLane(const uint8_t* from) {
  return _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Vectors that a row of so many bytes is taken as.
size_t VectorCount(size_t bytes) {
  const size_t rest = bytes % kVectorBytes;
  return bytes / kVectorBytes + (rest >= kLaneBytes ? 1 : 0) + (rest % kLaneBytes > 0 ? 1 : 0);
}

// Four sums that add up to that of the row.
[[gnu::always_inline]] inline __m256i SumRow(const uint8_t* row, size_t bytes) {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 2 * kVectorBytes <= bytes; i += 2 * kVectorBytes) {
    even = _mm256_add_epi64(even, SumEights(Load(row + i)));
    odd = _mm256_add_epi64(odd, SumEights(Load(row + i + kVectorBytes)));
  }
  __m256i sum = _mm256_add_epi64(even, odd);
  if (i + kVectorBytes <= bytes) {
    sum = _mm256_add_epi64(sum, SumEights(Load(row + i)));
    i += kVectorBytes;
  }
  if (i + kLaneBytes <= bytes) {
    sum = _mm256_add_epi64(sum, SumEights(LoadLane(row + i)));
    i += kLaneBytes;
  }
  if (i == bytes) return sum;
  uint8_t rest[kLaneBytes] = {};
  std::memcpy(rest, row + i, bytes - i);
  return _mm256_add_epi64(sum, SumEights(LoadLane(rest)));
}

// The total of each of four rows; no more than 32 bits of them are asked for.
__m128i Totals(const __m256i (&row)[kRowsAtOnce]) {
  const __m256i a = _mm256_or_si256(row[0], _mm256_slli_epi64(row[1], 32));
  const __m256i b = _mm256_or_si256(row[2], _mm256_slli_epi64(row[3], 32));
  const __m256i sum = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  return _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

}  // namespace

void SumRowsAvx2(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols,
                 int32_t* sums) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(rows);
  const auto bias = static_cast<uint32_t>(VectorCount(cols) * kVectorBias);
  for (size_t r = 0; r < row_count; r += kRowsAtOnce) {
    const size_t count = row_count - r < kRowsAtOnce ? row_count - r : kRowsAtOnce;
    __m256i row[kRowsAtOnce];
    for (size_t i = 0; i < kRowsAtOnce; ++i) {  // of four always, the last row again for none
      row[i] = SumRow(bytes + (r + (i < count ? i : count - 1)) * row_stride, cols);
    }
    uint32_t totals[kRowsAtOnce];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(totals), Totals(row));
    for (size_t i = 0; i < count; ++i) sums[r + i] += static_cast<int32_t>(totals[i] - bias);
  }
}

}  // namespace prepack
