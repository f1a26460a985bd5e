// AVX2: 32 bytes at a time are summed by the instruction for sums of absolute differences (from
// zero), which takes unsigned bytes: signed ones get 128 added, which is taken off in the end. Four
// rows share the work of adding up what is left in the registers.

#include <immintrin.h>

#include <cstring>

#include "kernels/row_sums.h"

namespace prepack {
namespace {

constexpr size_t kVectorBytes = 32;
constexpr size_t kLaneBytes = 16;
constexpr size_t kRowsAtOnce = 4;

enum class Code { kByte, kNibble };

// What a vector of zeros counts for.
template <Code kCode>
constexpr size_t kVectorBias = kCode == Code::kByte ? 128 * kVectorBytes : 0;

// The sums of each eight bytes.
template <Code kCode>
[[gnu::always_inline]] inline __m256i SumEights(__m256i bytes) {
  if constexpr (kCode == Code::kByte) {
    bytes = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
  } else {
    const __m256i low_halves = _mm256_set1_epi8(0x0F);
    bytes = _mm256_add_epi8(_mm256_and_si256(bytes, low_halves),
                            _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_halves));
  }
  return _mm256_sad_epu8(bytes, _mm256_setzero_si256());
}

[[gnu::always_inline]] inline __m256i Load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
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
template <Code kCode>
[[gnu::always_inline]] inline __m256i SumRow(const uint8_t* row, size_t bytes) {
  __m256i even = _mm256_setzero_si256();
  __m256i odd = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + 2 * kVectorBytes <= bytes; i += 2 * kVectorBytes) {
    even = _mm256_add_epi64(even, SumEights<kCode>(Load(row + i)));
    odd = _mm256_add_epi64(odd, SumEights<kCode>(Load(row + i + kVectorBytes)));
  }
  __m256i sum = _mm256_add_epi64(even, odd);
  if (i + kVectorBytes <= bytes) {
    sum = _mm256_add_epi64(sum, SumEights<kCode>(Load(row + i)));
    i += kVectorBytes;
  }
  if (i + kLaneBytes <= bytes) {
    sum = _mm256_add_epi64(sum, SumEights<kCode>(LoadLane(row + i)));
    i += kLaneBytes;
  }
  if (i == bytes) return sum;
  uint8_t rest[kLaneBytes] = {};
  std::memcpy(rest, row + i, bytes - i);
  return _mm256_add_epi64(sum, SumEights<kCode>(LoadLane(rest)));
}

// The total of each of four rows; no more than 32 bits of them are asked for.
__m128i Totals(const __m256i (&row)[kRowsAtOnce]) {
  const __m256i a = _mm256_or_si256(row[0], _mm256_slli_epi64(row[1], 32));
  const __m256i b = _mm256_or_si256(row[2], _mm256_slli_epi64(row[3], 32));
  const __m256i sum = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
  return _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
}

template <Code kCode>
void SumRows(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t bytes, int32_t* sums) {
  const auto bias = static_cast<uint32_t>(VectorCount(bytes) * kVectorBias<kCode>);
  for (size_t r = 0; r < row_count; r += kRowsAtOnce) {
    const size_t count = row_count - r < kRowsAtOnce ? row_count - r : kRowsAtOnce;
    __m256i row[kRowsAtOnce];
    for (size_t i = 0; i < kRowsAtOnce; ++i) {  // of four always, the last row again for none
      row[i] = SumRow<kCode>(rows + (r + (i < count ? i : count - 1)) * row_bytes, bytes);
    }
    uint32_t totals[kRowsAtOnce];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(totals), Totals(row));
    for (size_t i = 0; i < count; ++i) sums[r + i] += static_cast<int32_t>(totals[i] - bias);
  }
}

void SumBytes(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols, int32_t* sums) {
  SumRows<Code::kByte>(reinterpret_cast<const uint8_t*>(rows), row_stride, row_count, cols, sums);
}

void SumNibbles(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t cols,
                int32_t* sums) {
  SumRows<Code::kNibble>(rows, row_bytes, row_count, cols / 2, sums);
}

}  // namespace

const RowSums kRowSumsAvx2 = {SumBytes, SumNibbles};

}  // namespace prepack
