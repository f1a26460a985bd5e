// AVX2: blocks of 16/U columns, which are 16 bytes of a row, by twice as many rows: the two lanes
// hold rows that lie half a block apart, so that what is transposed within lanes is 32 bytes of a
// row of the output.
//
// Only matrices smaller than a block are left to the scalar twin.

#include <immintrin.h>

#include "kernels/unit_transpose.h"
#include "kernels/unit_transpose_runs.h"

namespace prepack {
namespace {

constexpr size_t kLaneBytes = 16;

template <size_t kUnit>
constexpr size_t kCols = kLaneBytes / kUnit;
template <size_t kUnit>
constexpr size_t kRows = 2 * kCols<kUnit>;
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

const __m128i* Lane(const std::byte* from) {
  return reinterpret_cast<const __m128i*>(from);
}

// A lane of each of two rows.
__m256i Load(const std::byte* low, const std::byte* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(Lane(low))),
                                 _mm_loadu_si128(Lane(high)), 1);
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
  static constexpr size_t kRows = prepack::kRows<kUnit>;

  [[gnu::always_inline]] static void Transpose(const std::byte* in, size_t in_stride,
                                               std::byte* out, size_t out_stride) {
    Registers<kUnit> block;
    for (size_t i = 0; i < kCols; ++i) {
      block.reg[i] = Load(in + i * in_stride, in + (i + kCols) * in_stride);
    }
    for (size_t bits = 1; bits < kCols; bits *= 2) block = Shuffle<kUnit>(block);
    for (size_t i = 0; i < kCols; ++i) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * out_stride), block.reg[i]);
    }
  }
};

template <size_t kUnit>
void Transpose(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
               size_t out_stride) {
  if (rows < kRows<kUnit> || cols < kCols<kUnit>) {
    return TransposeUnitsFor(Isa::kScalar, kUnit)(in, in_stride, rows, cols, out, out_stride);
  }
  TransposeMatrix<Block<kUnit>>({in, in_stride, rows, cols, out, out_stride});
}

}  // namespace

const UnitTranspose kUnitTransposeAvx2 = {Transpose<1>, Transpose<2>, Transpose<4>, Transpose<8>};

}  // namespace prepack
