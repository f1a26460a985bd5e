// AVX-512: as row_sums_avx2.cpp, with 64 bytes at a time, and eight rows that share the work of
// adding up. What is left of rows goes to AVX2, which adds it.

#include "kernels/row_sums.h"
#include "kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kRowsAtOnce = 8;

enum class Code { kByte, kNibble };

// What a vector of zeros counts for.
template <Code kCode>
constexpr size_t kVectorBias = kCode == Code::kByte ? 128 * kZmmBytes : 0;

// The sums of each eight bytes.
template <Code kCode>
[[gnu::always_inline]] inline __m512i SumEights(__m512i bytes) {
  if constexpr (kCode == Code::kByte) {
    bytes = _mm512_xor_si512(bytes, _mm512_set1_epi8(-128));
  } else {
    const __m512i low_halves = _mm512_set1_epi8(0x0F);
    bytes = _mm512_add_epi8(_mm512_and_si512(bytes, low_halves),
                            _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_halves));
  }
  return _mm512_sad_epu8(bytes, _mm512_setzero_si512());
}

// Eight sums that add up to that of the row.
template <Code kCode>
[[gnu::always_inline]] inline __m512i SumRow(const uint8_t* row, size_t bytes) {
  __m512i sum = _mm512_setzero_si512();
  for (size_t i = 0; i < bytes; i += kZmmBytes) {
    sum = _mm512_add_epi64(sum, SumEights<kCode>(Load(row + i)));
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
template <Code kCode>
void SumRows(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t bytes, int32_t* sums) {
  const auto bias = static_cast<uint32_t>(bytes / kZmmBytes * kVectorBias<kCode>);
  for (size_t r = 0; r < row_count; r += kRowsAtOnce) {
    const size_t count = row_count - r < kRowsAtOnce ? row_count - r : kRowsAtOnce;
    __m512i row[kRowsAtOnce];
    for (size_t i = 0; i < kRowsAtOnce; ++i) {  // of eight always, the last row again for none
      row[i] = SumRow<kCode>(rows + (r + (i < count ? i : count - 1)) * row_bytes, bytes);
    }
    uint32_t totals[kRowsAtOnce];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(totals), Totals(row));
    for (size_t i = 0; i < count; ++i) sums[r + i] += static_cast<int32_t>(totals[i] - bias);
  }
}

size_t WholeVectors(size_t bytes) {
  return bytes / kZmmBytes * kZmmBytes;
}

void SumBytes(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols, int32_t* sums) {
  const size_t whole = WholeVectors(cols);
  SumRows<Code::kByte>(reinterpret_cast<const uint8_t*>(rows), row_stride, row_count, whole, sums);
  if (whole == cols) return;
  kRowSumsAvx2.bytes(rows + whole, row_stride, row_count, cols - whole, sums);
}

void SumNibbles(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t cols,
                int32_t* sums) {
  const size_t whole = WholeVectors(cols / 2);
  SumRows<Code::kNibble>(rows, row_bytes, row_count, whole, sums);
  if (whole == cols / 2) return;
  kRowSumsAvx2.nibbles(rows + whole, row_bytes, row_count, cols - 2 * whole, sums);
}

}  // namespace

const RowSums kRowSumsAvx512 = {SumBytes, SumNibbles};

}  // namespace prepack
