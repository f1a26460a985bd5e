// AVX-512 gives registers of 32 bytes what they lack with AVX2: there are as many as a block fills,
// and they have bitwise operations of three operands. In registers of 64 bytes lanes have to be put
// together by shuffles, which is what the CPU has the least time for: on Zen 4 that was slower.

#include "prepack/kernels/nibble_transpose_wide_blocks.h"

namespace prepack {
namespace {

struct Avx512 {
  [[gnu::always_inline]] static void SwapNibbles(__m256i& a, __m256i& b, __m256i masks) {
    constexpr int kDifferenceAtOnes = 0x28;  // (a ^ b) & mask
    constexpr int kXor = 0x96;
    const __m256i moved = _mm256_ternarylogic_epi32(_mm256_srli_epi16(a, 4), b,
                                                    _mm256_set1_epi8(0x0F), kDifferenceAtOnes);
    b = _mm256_ternarylogic_epi32(b, moved, masks, kXor);
    a = _mm256_ternarylogic_epi32(a, _mm256_slli_epi16(moved, 4), masks, kXor);
  }
};

}  // namespace

const WideNibbleTranspose kWideNibbleTransposeAvx512 = {RowsToColumns<Avx512>,
                                                        ColumnsToRows<Avx512>};

}  // namespace prepack
