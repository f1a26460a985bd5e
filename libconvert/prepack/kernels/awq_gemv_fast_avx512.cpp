// AVX-512: one channel of two chunks at a time, a run in each lane.
//
// Comments give the place of a nibble in a run as the bits of its index: r2 r1 r0 number the 16-bit
// numbers, i1 i0 the nibbles in one. A place is (byte; half).

#include "prepack/kernels/awq_gemv_fast.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

// (i1 r2 r1 r0; i0) → (i1 r2 r1 i0; r0)
[[gnu::always_inline]] inline __m512i SwapInnerNibbles(__m512i pairs) {
  const __m512i inner =
      Select(_mm512_set1_epi16(0x0F00), _mm512_slli_epi16(pairs, 4), _mm512_srli_epi16(pairs, 4));
  return Select(_mm512_set1_epi16(0x0FF0), inner, pairs);
}

// (r2 r1 r0 i1; i0) → (i1 i0 r2 r1; r0)
[[gnu::always_inline]] inline __m512i TransposeRuns(__m512i runs) {
  const __m512i halves =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  const __m512i quarters =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  const __m512i pairs = SwapInnerNibbles(_mm512_shuffle_epi8(runs, halves));
  return _mm512_shuffle_epi8(pairs, quarters);
}

}  // namespace

void UnpackGemvFastAvx512(const uint8_t* stored, size_t chunks, uint8_t* unpacked) {
  for (; chunks >= 2; chunks -= 2) {
    Store(unpacked, TransposeRuns(LoadHalves(stored, stored + kGemvFastChunkBytes)));
    stored += 2 * kGemvFastChunkBytes;
    unpacked += 2 * kGemvFastRowBytes;
  }
  UnpackGemvFastAvx2(stored, chunks, unpacked);
}

}  // namespace prepack
