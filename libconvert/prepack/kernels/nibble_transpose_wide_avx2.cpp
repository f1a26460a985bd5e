#include "prepack/kernels/nibble_transpose_wide_blocks.h"

namespace prepack {
namespace {

struct Avx2 {
  [[gnu::always_inline]] static void SwapNibbles(__m256i& a, __m256i& b, __m256i masks) {
    const __m256i low_halves = _mm256_set1_epi8(0x0F);
    const __m256i moved =
        _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(a, 4), b), low_halves);
    b = _mm256_xor_si256(_mm256_xor_si256(b, moved), masks);
    a = _mm256_xor_si256(_mm256_xor_si256(a, _mm256_slli_epi16(moved, 4)), masks);
  }
};

}  // namespace

const WideNibbleTranspose kWideNibbleTransposeAvx2 = {RowsToColumns<Avx2>, ColumnsToRows<Avx2>};

}  // namespace prepack
