#ifndef PREPACK_KERNELS_YMM_H_
#define PREPACK_KERNELS_YMM_H_

// For the files that may use AVX2, or its registers with more instructions (zmm.h has those of
// AVX-512).

#include "prepack/kernels/avx512_intrinsics.h"

namespace prepack {
namespace {  // NOLINT(google-build-namespaces): a copy for each instruction set

[[gnu::always_inline]] inline __m256i Load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

[[gnu::always_inline]] inline void Store(void* to, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}

// 16 bytes of each of two places.
[[gnu::always_inline]] inline __m256i LoadLanes(const void* low, const void* high) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(low))),
      _mm_loadu_si128(static_cast<const __m128i*>(high)), 1);
}

}  // namespace
}  // namespace prepack

#endif  // PREPACK_KERNELS_YMM_H_
