// AVX2: eight channels, two sums of 16 bits for each, in a register; two registers at a time.

#include <immintrin.h>

#include "kernels/unit_sums.h"

namespace prepack {
namespace {

constexpr size_t kVectorBytes = 32;
constexpr size_t kVectorChannels = 8;

// Sums of neighbours, for which the instruction wants a factor: one.
[[gnu::always_inline]] inline __m256i SumPairs(const int8_t* codes) {
  return _mm256_maddubs_epi16(_mm256_set1_epi8(1),
                              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
}

[[gnu::always_inline]] inline void AddTo(int32_t* sums, __m256i pairs) {
  auto* to = reinterpret_cast<__m256i*>(sums);
  const __m256i of_channels = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), of_channels));
}

}  // namespace

void SumUnitsAvx2(const int8_t* units, size_t step, size_t count, size_t channels, int32_t* sums) {
  size_t n = 0;
  for (; n + 2 * kVectorChannels <= channels; n += 2 * kVectorChannels) {
    __m256i low = _mm256_setzero_si256();
    __m256i high = _mm256_setzero_si256();
    for (size_t u = 0; u < count; ++u) {
      const int8_t* unit = units + u * step + 4 * n;
      low = _mm256_add_epi16(low, SumPairs(unit));
      high = _mm256_add_epi16(high, SumPairs(unit + kVectorBytes));
    }
    AddTo(sums + n, low);
    AddTo(sums + n + kVectorChannels, high);
  }
  SumUnitsScalar(units + 4 * n, step, count, channels - n, sums + n);
}

}  // namespace prepack
