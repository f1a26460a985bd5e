// AVX-512: as unit_sums_avx2.cpp, with twice as many channels in a register. What is left of them
// goes to AVX2.

#include "kernels/unit_sums.h"
#include "kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kVectorChannels = 16;

[[gnu::always_inline]] inline __m512i SumPairs(const int8_t* codes) {
  return _mm512_maddubs_epi16(_mm512_set1_epi8(1), Load(codes));
}

[[gnu::always_inline]] inline void AddTo(int32_t* sums, __m512i pairs) {
  Store(sums, _mm512_add_epi32(Load(sums), _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))));
}

}  // namespace

void SumUnitsAvx512(const int8_t* units, size_t step, size_t count, size_t channels,
                    int32_t* sums) {
  size_t n = 0;
  for (; n + 2 * kVectorChannels <= channels; n += 2 * kVectorChannels) {
    __m512i low = _mm512_setzero_si512();
    __m512i high = _mm512_setzero_si512();
    for (size_t u = 0; u < count; ++u) {
      const int8_t* unit = units + u * step + 4 * n;
      low = _mm512_add_epi16(low, SumPairs(unit));
      high = _mm512_add_epi16(high, SumPairs(unit + kZmmBytes));
    }
    AddTo(sums + n, low);
    AddTo(sums + n + kVectorChannels, high);
  }
  SumUnitsAvx2(units + 4 * n, step, count, channels - n, sums + n);
}

}  // namespace prepack
