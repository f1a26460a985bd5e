#ifndef PREPACK_KERNELS_TOTAL_H_
#define PREPACK_KERNELS_TOTAL_H_

// For the files that may use AVX2.

#include <cstdint>

#include "prepack/kernels/avx512_intrinsics.h"

namespace prepack {
namespace {  // NOLINT(google-build-namespaces): a copy for each instruction set

// The sum of eight numbers.
[[gnu::always_inline]] inline int32_t Total(__m256i numbers) {
  __m128i sum =
      _mm_add_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

}  // namespace
}  // namespace prepack

#endif  // PREPACK_KERNELS_TOTAL_H_
