// AVX2: blocks of 16/U columns, which are 16 bytes of a row, by twice as many rows: the two lanes
// hold rows that lie half a block apart, so that what is transposed within lanes is 32 bytes of a
// row of the output.
//
// Only matrices smaller than a block are left to the scalar twin.

#include "prepack/kernels/total.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/kernels/unit_transpose_runs.h"
#include "prepack/kernels/ymm.h"

namespace prepack {
namespace {

constexpr size_t kLaneBytes = 16;

template <size_t kUnit>
constexpr size_t kCols = kLaneBytes / kUnit;

template <size_t kUnit>
__m256i UnpackLow(__m256i a, __m256i b) {
  if constexpr (kUnit == 1) return _mm256_unpacklo_epi8(a, b);
  if constexpr (kUnit == 2) return _mm256_unpacklo_epi16(a, b);
  if constexpr (kUnit == 4) return _mm256_unpacklo_epi32(a, b);
  if constexpr (kUnit == 8) return _mm256_unpacklo_epi64(a, b);
}

template <size_t kUnit>
__m256i UnpackHigh(__m256i a, __m256i b) {
  if constexpr (kUnit == 1) return _mm256_unpackhi_epi8(a, b);
  if constexpr (kUnit == 2) return _mm256_unpackhi_epi16(a, b);
  if constexpr (kUnit == 4) return _mm256_unpackhi_epi32(a, b);
  if constexpr (kUnit == 8) return _mm256_unpackhi_epi64(a, b);
}

template <size_t kUnit>
struct Registers {
  __m256i reg[kCols<kUnit>];
};

// In a lane of a block, the index of a unit is (row, column). Interleaving the first half of the
// units with the second is a rotation of the bits of this index to the left by one: as many as the
// column has bits make it (column, row).
template <size_t kUnit>
Registers<kUnit> Shuffle(const Registers<kUnit>& in) {
  constexpr size_t kHalf = kCols<kUnit> / 2;
  Registers<kUnit> out;
  for (size_t i = 0; i < kHalf; ++i) {
    out.reg[2 * i] = UnpackLow<kUnit>(in.reg[i], in.reg[i + kHalf]);
    out.reg[2 * i + 1] = UnpackHigh<kUnit>(in.reg[i], in.reg[i + kHalf]);
  }
  return out;
}

template <size_t kUnitBytes>
struct Block {
  static constexpr size_t kUnit = kUnitBytes;
  static constexpr size_t kCols = prepack::kCols<kUnit>;
  static constexpr size_t kRows = 2 * kCols;

  [[gnu::always_inline]] static void Transpose(const std::byte* in, size_t in_stride,
                                               std::byte* out, size_t out_stride) {
    Registers<kUnit> block;
    for (size_t i = 0; i < kCols; ++i) {
      block.reg[i] = LoadLanes(in + i * in_stride, in + (i + kCols) * in_stride);
    }
    for (size_t bits = 1; bits < kCols; bits *= 2) block = Shuffle<kUnit>(block);
    for (size_t i = 0; i < kCols; ++i) {
      Store(out + i * out_stride, block.reg[i]);
    }
  }
};

template <size_t kUnit>
void Transpose(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
               size_t out_stride) {
  if (rows < Block<kUnit>::kRows || cols < Block<kUnit>::kCols) {
    return TransposeUnitsFor(kUnit, Isa::kScalar)(in, in_stride, rows, cols, out, out_stride);
  }
  TransposeMatrix<Block<kUnit>>({in, in_stride, rows, cols, out, out_stride});
}

// The sum of some codes. Copying leaves the units that add idle; shuffling would not.
class CodeSum {
 public:
  static constexpr size_t kBytes = sizeof(__m256i);

  [[gnu::always_inline]] void CopyAndAdd(const std::byte* from, std::byte* to) {
    const __m256i codes = Load(from);
    Store(to, codes);
    // The instruction that sums pairs wants factors.
    pairs_ = _mm256_add_epi16(pairs_, _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes));
  }

  [[gnu::always_inline]] int32_t Sum() const {
    return Total(_mm256_madd_epi16(pairs_, _mm256_set1_epi16(1)));
  }

 private:
  __m256i pairs_ = _mm256_setzero_si256();
};

void SummedWords(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
                 size_t out_stride, int32_t* sums) {
  TransposeSummed<Block<4>, CodeSum>({in, in_stride, rows, cols, out, out_stride}, sums,
                                     {Transpose<4>, SumRowsAvx2});
}

}  // namespace

const UnitTranspose kUnitTransposeAvx2 = {Transpose<1>, Transpose<2>, Transpose<4>, Transpose<8>,
                                          SummedWords};

}  // namespace prepack
