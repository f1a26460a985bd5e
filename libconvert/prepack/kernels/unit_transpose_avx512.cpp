// AVX-512, for units of 4 and 8 bytes: blocks of as many rows as a cache line has units, a line of
// each. Smaller matrices are left to AVX2, and so are smaller units: their blocks would be half a
// line wide, or more registers than there are, and were slower on Zen 4.

#include "prepack/kernels/total.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/kernels/unit_transpose_runs.h"
#include "prepack/kernels/zmm.h"

namespace prepack {
namespace {

// Exchanges lane i of register j with lane j of register i.
[[gnu::always_inline]] inline void TransposeLanes(__m512i& a, __m512i& b, __m512i& c, __m512i& d) {
  const __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x44);   // a0 a1 b0 b1
  const __m512i ab_high = _mm512_shuffle_i32x4(a, b, 0xEE);  // a2 a3 b2 b3
  const __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x44);
  const __m512i cd_high = _mm512_shuffle_i32x4(c, d, 0xEE);
  a = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88);
  b = _mm512_shuffle_i32x4(ab_low, cd_low, 0xDD);
  c = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88);
  d = _mm512_shuffle_i32x4(ab_high, cd_high, 0xDD);
}

template <size_t kUnitBytes>
struct Block {
  static constexpr size_t kUnit = kUnitBytes;
  static constexpr size_t kCols = kZmmBytes / kUnit;
  static constexpr size_t kRows = kCols;

  [[gnu::always_inline]] static void Transpose(const std::byte* in, size_t in_stride,
                                               std::byte* out, size_t out_stride) {
    constexpr size_t kLanes = 4;
    constexpr size_t kLaneUnits = kCols / kLanes;
    __m512i reg[kLanes][kLaneUnits];
    for (size_t i = 0; i < kRows; ++i) {
      reg[i / kLaneUnits][i % kLaneUnits] = Load(in + i * in_stride);
    }
    for (auto& rows : reg) {
      for (size_t bits = 1; bits < kLaneUnits; bits *= 2) RotateIndex<kUnit>(rows);
    }
    for (size_t i = 0; i < kLaneUnits; ++i) {
      TransposeLanes(reg[0][i], reg[1][i], reg[2][i], reg[3][i]);
    }
    for (size_t i = 0; i < kCols; ++i) {
      Store(out + i * out_stride, reg[i / kLaneUnits][i % kLaneUnits]);
    }
  }
};

template <size_t kUnit>
void Transpose(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
               size_t out_stride) {
  if constexpr (kUnit >= 4) {
    if (rows >= Block<kUnit>::kRows && cols >= Block<kUnit>::kCols) {
      return TransposeMatrix<Block<kUnit>>({in, in_stride, rows, cols, out, out_stride});
    }
  }
  TransposeUnitsFor(kUnit, Isa::kAvx2)(in, in_stride, rows, cols, out, out_stride);
}

// The sum of some codes. Copying leaves the units that add idle; shuffling would not.
class CodeSum {
 public:
  static constexpr size_t kBytes = sizeof(__m512i);

  [[gnu::always_inline]] void CopyAndAdd(const std::byte* from, std::byte* to) {
    const __m512i codes = Load(from);
    Store(to, codes);
    // The instruction that sums pairs wants factors.
    pairs_ = _mm512_add_epi16(pairs_, _mm512_maddubs_epi16(_mm512_set1_epi8(1), codes));
  }

  [[gnu::always_inline]] int32_t Sum() const {
    const __m512i fours = _mm512_madd_epi16(pairs_, _mm512_set1_epi16(1));
    return Total(
        _mm256_add_epi32(_mm512_castsi512_si256(fours), _mm512_extracti64x4_epi64(fours, 1)));
  }

 private:
  __m512i pairs_ = _mm512_setzero_si512();
};

void SummedWords(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
                 size_t out_stride, int32_t* sums) {
  TransposeSummed<Block<4>, CodeSum>({in, in_stride, rows, cols, out, out_stride}, sums,
                                     {Transpose<4>, SumRowsAvx512});
}

}  // namespace

const UnitTranspose kUnitTransposeAvx512 = {Transpose<1>, Transpose<2>, Transpose<4>, Transpose<8>,
                                            SummedWords};

}  // namespace prepack
