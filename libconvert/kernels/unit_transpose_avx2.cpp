// AVX2: blocks of 16/U columns, which are 16 bytes of a row, by twice as many rows: the two lanes
// hold rows that lie half a block apart, so that what is transposed within lanes is 32 bytes of a
// row of the output.
//
// Blocks and tiles that would stick out at the end are moved back over their neighbours, and write
// some units twice. Only matrices smaller than a block are left to the scalar twin.

#include <immintrin.h>

#include "kernels/runs_avx2.h"
#include "kernels/unit_transpose.h"

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
}

template <size_t kUnit>
__m256i UnpackHigh(__m256i a, __m256i b) {
  if constexpr (kUnit == 1) return _mm256_unpackhi_epi8(a, b);
  if constexpr (kUnit == 2) return _mm256_unpackhi_epi16(a, b);
  if constexpr (kUnit == 4) return _mm256_unpackhi_epi32(a, b);
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
struct Block {
  __m256i reg[kCols<kUnit>];
};

// In a lane of a block, the index of a unit is (row, column). Interleaving the first half of the
// units with the second is a rotation of the bits of this index to the left by one: as many as the
// column has bits make it (column, row).
template <size_t kUnit>
Block<kUnit> Shuffle(const Block<kUnit>& in) {
  constexpr size_t kHalf = kCols<kUnit> / 2;
  Block<kUnit> out;
  for (size_t i = 0; i < kHalf; ++i) {
    out.reg[2 * i] = UnpackLow<kUnit>(in.reg[i], in.reg[i + kHalf]);
    out.reg[2 * i + 1] = UnpackHigh<kUnit>(in.reg[i], in.reg[i + kHalf]);
  }
  return out;
}

size_t Least(size_t a, size_t b) {
  return a < b ? a : b;
}

struct Matrix {
  const std::byte* in;
  size_t in_stride;
  size_t rows;
  size_t cols;
  std::byte* out;
  size_t out_stride;
};

template <size_t kUnit>
[[gnu::always_inline]] inline void TransposeBlock(const std::byte* in, size_t in_stride,
                                                  std::byte* out, size_t out_stride) {
  Block<kUnit> block;
  for (size_t i = 0; i < kCols<kUnit>; ++i) {
    block.reg[i] = Load(in + i * in_stride, in + (i + kCols<kUnit>)*in_stride);
  }
  block = Shuffle<kUnit>(Shuffle<kUnit>(block));
  if constexpr (kUnit < 4) block = Shuffle<kUnit>(block);
  if constexpr (kUnit < 2) block = Shuffle<kUnit>(block);
  for (size_t i = 0; i < kCols<kUnit>; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * out_stride), block.reg[i]);
  }
}

// Block by block, straight from the input to the output.
template <size_t kUnit>
void TransposeBlocks(const Matrix& m) {
  for (size_t next_c = 0; next_c < m.cols; next_c += kCols<kUnit>) {
    const size_t c = Least(next_c, m.cols - kCols<kUnit>);
    for (size_t next_r = 0; next_r < m.rows; next_r += kRows<kUnit>) {
      const size_t r = Least(next_r, m.rows - kRows<kUnit>);
      TransposeBlock<kUnit>(m.in + r * m.in_stride + c * kUnit, m.in_stride,
                            m.out + c * m.out_stride + r * kUnit, m.out_stride);
    }
  }
}

// Where rows of the input lie further apart than those of the output: a run of each row of a block
// at a time.
template <size_t kUnit, size_t kRunBytes>
void TransposeInputRuns(const Matrix& m) {
  constexpr size_t kRun = kRunBytes / kUnit;
  alignas(kLineBytes) std::byte tile[kRows<kUnit> * kRunBytes];
  for (size_t next_c = 0; next_c < m.cols; next_c += kRun) {
    const size_t c = Least(next_c, m.cols - kRun);
    for (size_t next_r = 0; next_r < m.rows; next_r += kRows<kUnit>) {
      const size_t r = Least(next_r, m.rows - kRows<kUnit>);
      CopyRuns<kRunBytes>(m.in + r * m.in_stride + c * kUnit, m.in_stride, kRows<kUnit>, tile,
                          kRunBytes);
      std::byte* out = m.out + c * m.out_stride + r * kUnit;
      for (size_t i = 0; i < kRun; i += kCols<kUnit>) {
        TransposeBlock<kUnit>(tile + i * kUnit, kRunBytes, out + i * m.out_stride, m.out_stride);
      }
    }
  }
}

// The other way round: a run of each of as many rows of the output as a block has columns.
template <size_t kUnit, size_t kRunBytes>
void TransposeOutputRuns(const Matrix& m) {
  constexpr size_t kRun = kRunBytes / kUnit;
  alignas(kLineBytes) std::byte tile[kCols<kUnit> * kRunBytes];
  for (size_t next_r = 0; next_r < m.rows; next_r += kRun) {
    const size_t r = Least(next_r, m.rows - kRun);
    for (size_t next_c = 0; next_c < m.cols; next_c += kCols<kUnit>) {
      const size_t c = Least(next_c, m.cols - kCols<kUnit>);
      const std::byte* in = m.in + r * m.in_stride + c * kUnit;
      for (size_t i = 0; i < kRun; i += kRows<kUnit>) {
        TransposeBlock<kUnit>(in + i * m.in_stride, m.in_stride, tile + i * kUnit, kRunBytes);
      }
      CopyRuns<kRunBytes>(tile, kRunBytes, kCols<kUnit>, m.out + c * m.out_stride + r * kUnit,
                          m.out_stride);
    }
  }
}

// Bytes of a run. Long ones of a block of rows, and what is made of them, fit into an L1 cache of
// 32 KiB together, unless that lies further apart than kNearStride.
constexpr size_t kLongRun = 512;
constexpr size_t kShortRun = 256;
constexpr size_t kNearStride = 128;

template <size_t kUnit>
void Transpose(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
               size_t out_stride) {
  if (rows < kRows<kUnit> || cols < kCols<kUnit>) {
    return TransposeUnitsFor(Isa::kScalar, kUnit)(in, in_stride, rows, cols, out, out_stride);
  }
  const Matrix matrix = {in, in_stride, rows, cols, out, out_stride};
  const bool by_input = in_stride >= out_stride;
  const size_t row_bytes = (by_input ? cols : rows) * kUnit;
  if (row_bytes < kShortRun) return TransposeBlocks<kUnit>(matrix);
  if (!by_input) {
    return row_bytes < kLongRun ? TransposeOutputRuns<kUnit, kShortRun>(matrix)
                                : TransposeOutputRuns<kUnit, kLongRun>(matrix);
  }
  return row_bytes < kLongRun || out_stride > kNearStride
             ? TransposeInputRuns<kUnit, kShortRun>(matrix)
             : TransposeInputRuns<kUnit, kLongRun>(matrix);
}

}  // namespace

const UnitTranspose kUnitTransposeAvx2 = {Transpose<1>, Transpose<2>, Transpose<4>};

}  // namespace prepack
