// AVX2: one channel of a chunk, four 4 × 4 matrices of nibbles, at a time.

#include <immintrin.h>

#include "kernels/awq_gemv_fast.h"

namespace prepack {
namespace {

// See the scalar twin.
__m256i Transpose(__m256i x) {
  const __m256i inner = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, 12)),
                                         _mm256_set1_epi64x(0x0000F0F00000F0F0));
  x = _mm256_xor_si256(x, _mm256_xor_si256(inner, _mm256_slli_epi64(inner, 12)));
  const __m256i outer = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, 24)),
                                         _mm256_set1_epi64x(0x00000000FF00FF00));
  return _mm256_xor_si256(x, _mm256_xor_si256(outer, _mm256_slli_epi64(outer, 24)));
}

}  // namespace

void UnpackGemvFastAvx2(const uint8_t* stored, size_t chunks, uint8_t* unpacked) {
  // Interleaves the 16-bit numbers of the two halves of a lane, which is a run.
  const __m256i interleave = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const __m256i runs =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(stored + chunk * kGemvFastChunkBytes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(unpacked + chunk * kGemvFastRowBytes),
                        _mm256_shuffle_epi8(Transpose(runs), interleave));
  }
}

}  // namespace prepack
