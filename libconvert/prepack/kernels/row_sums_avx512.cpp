// AVX-512: as row_sums_avx2.cpp, with 64 bytes at a time, and eight rows that share the work of
// adding up. What is left of rows goes to AVX2, which adds it.

#include "prepack/kernels/row_sums.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kRowsAtOnce = 8;

// What a vector of zeros counts for.
constexpr size_t kVectorBias = 128 * kZmmBytes;

// The sums of each eight bytes.
[[gnu::always_inline]] inline __m512i SumEights(__m512i bytes) {
  return _mm512_sad_epu8(_mm512_xor_si512(bytes, _mm512_set1_epi8(-128)), _mm512_setzero_si512());
}

// Eight sums that add up to that of the row.
[[gnu::always_inline]] inline __m512i SumRow(const uint8_t* row, size_t bytes) {
  __m512i sum = _mm512_setzero_si512();
  for (size_t i = 0; i < bytes; i += kZmmBytes) {
    sum = _mm512_add_epi64(sum, SumEights(Load(row + i)));
  }
  return sum;
}

// Sums of four rows in every lane, of which no more than 32 bits are asked for.
[[gnu::always_inline]] inline __m512i AddFourRows(const __m512i* row) {
  const __m512i a = _mm512_or_si512(row[0], _mm512_slli_epi64(row[1], 32));
  const __m512i b = _mm512_or_si512(row[2], _mm512_slli_epi64(row[3], 32));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// The total of each of eight rows.
[[gnu::always_inline]] inline __m256i Totals(const __m512i (&row)[kRowsAtOnce]) {
  const __m512i a = AddFourRows(row);
  const __m512i b = AddFourRows(row + kRowsAtOnce / 2);
  const __m512i sum =
      _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
  return _mm512_castsi512_si256(
      _mm512_add_epi32(_mm512_shuffle_i32x4(sum, sum, 0x08), _mm512_shuffle_i32x4(sum, sum, 0x0D)));
}

// Of whole vectors.
void SumVectors(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t bytes,
                int32_t* sums) {
  const auto bias = static_cast<uint32_t>(bytes / kZmmBytes * kVectorBias);
  for (size_t r = 0; r < row_count; r += kRowsAtOnce) {
    const size_t count = row_count - r < kRowsAtOnce ? row_count - r : kRowsAtOnce;
    __m512i row[kRowsAtOnce];
    for (size_t i = 0; i < kRowsAtOnce; ++i) {  // of eight always, the last row again for none
      row[i] = SumRow(rows + (r + (i < count ? i : count - 1)) * row_bytes, bytes);
    }
    uint32_t totals[kRowsAtOnce];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(totals), Totals(row));
    for (size_t i = 0; i < count; ++i) sums[r + i] += static_cast<int32_t>(totals[i] - bias);
  }
}

}  // namespace

void SumRowsAvx512(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols,
                   int32_t* sums) {
  const size_t whole = cols / kZmmBytes * kZmmBytes;
  SumVectors(reinterpret_cast<const uint8_t*>(rows), row_stride, row_count, whole, sums);
  if (whole == cols) return;
  SumRowsAvx2(rows + whole, row_stride, row_count, cols - whole, sums);
}

}  // namespace prepack
