// AVX2: one channel of two chunks at a time.
//
// Comments give the place of a nibble as the bits of its index: r2 r1 r0 number the 16-bit numbers
// of a run, i1 i0 the nibbles in one, and c the two chunks. A place is (register; byte; half).

#include "prepack/kernels/awq_gemv_fast.h"
#include "prepack/kernels/ymm.h"

namespace prepack {
namespace {

// (c; r2 r1 r0 i1; i0) → (c; i1 i0 r2 r1; r0). A lane is a run.
void Transpose(__m256i& first, __m256i& second) {
  const __m256i gather = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  first = _mm256_shuffle_epi8(first, gather);  // (c; r0 i1 r2 r1; i0)
  second = _mm256_shuffle_epi8(second, gather);
  const __m256i even = _mm256_unpacklo_epi64(first, second);  // (r0; c i1 r2 r1; i0)
  const __m256i odd = _mm256_unpackhi_epi64(first, second);
  const __m256i moved =
      _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(even, 4), odd), _mm256_set1_epi8(0x0F));
  const __m256i high = _mm256_xor_si256(odd, moved);  // (i0; c i1 r2 r1; r0)
  const __m256i low = _mm256_xor_si256(even, _mm256_slli_epi16(moved, 4));
  first = _mm256_unpacklo_epi32(low, high);
  second = _mm256_unpackhi_epi32(low, high);
}

}  // namespace

void UnpackGemvFastAvx2(const uint8_t* stored, size_t chunks, uint8_t* unpacked) {
  for (; chunks >= 2; chunks -= 2) {
    __m256i first = Load(stored);
    __m256i second = Load(stored + kGemvFastChunkBytes);
    Transpose(first, second);
    Store(unpacked, first);
    Store(unpacked + kGemvFastRowBytes, second);
    stored += 2 * kGemvFastChunkBytes;
    unpacked += 2 * kGemvFastRowBytes;
  }
  if (chunks == 0) return;
  __m256i last = Load(stored);
  __m256i unused = last;
  Transpose(last, unused);
  Store(unpacked, last);
}

}  // namespace prepack
