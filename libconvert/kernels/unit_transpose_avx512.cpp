// AVX-512: blocks of 16 columns by as many rows as fill a register with units of one column. The
// four lanes hold rows that lie a fourth of a block apart, so that what is transposed within lanes
// is a cache line of a row of the output.
//
// Blocks that would stick out at the end are moved back over their neighbours, and write some units
// twice. Matrices smaller than a block are left to AVX2.

#include "kernels/unit_transpose.h"
#include "kernels/zmm.h"

namespace prepack {
namespace {

constexpr size_t kLanes = 4;
constexpr size_t kBlockCols = 16;
template <size_t kUnit>
constexpr size_t kRows = kZmmBytes / kUnit;
// Columns in a lane.
template <size_t kUnit>
constexpr size_t kLaneCols = kRows<kUnit> / kLanes;

size_t Least(size_t a, size_t b) {
  return a < b ? a : b;
}

template <size_t kUnit>
[[gnu::always_inline]] inline void TransposeBlock(const std::byte* in, size_t in_stride,
                                                  std::byte* out, size_t out_stride) {
  constexpr size_t kCount = kLaneCols<kUnit>;
  __m512i reg[kBlockCols / kCount][kCount];
  for (size_t row = 0; row < kCount; ++row) {  // what lies in one cache line, one after the other
    for (size_t lane = 0; lane < kBlockCols / kCount; ++lane) {
      reg[lane][row] =
          LoadLanes(in + row * in_stride + lane * kZmmBytes / kLanes, kCount * in_stride);
    }
  }
  for (size_t lane = 0; lane < kBlockCols / kCount; ++lane) {
    for (size_t bits = 1; bits < kCount; bits *= 2) RotateIndex<kUnit>(reg[lane]);
    for (size_t i = 0; i < kCount; ++i) {
      Store(out + (lane * kCount + i) * out_stride, reg[lane][i]);
    }
  }
}

struct Matrix {
  const std::byte* in;
  size_t in_stride;
  size_t rows;
  size_t cols;
  std::byte* out;
  size_t out_stride;
};

// The columns of kRows rows.
template <size_t kUnit>
void TransposeRows(const std::byte* in, size_t in_stride, size_t cols, std::byte* out,
                   size_t out_stride) {
  for (size_t next = 0; next < cols; next += kBlockCols) {
    const size_t c = Least(next, cols - kBlockCols);
    TransposeBlock<kUnit>(in + c * kUnit, in_stride, out + c * out_stride, out_stride);
  }
}

template <size_t kUnit>
void TransposeBlocks(const Matrix& m) {
  for (size_t next = 0; next < m.rows; next += kRows<kUnit>) {
    const size_t r = Least(next, m.rows - kRows<kUnit>);
    TransposeRows<kUnit>(m.in + r * m.in_stride, m.in_stride, m.cols, m.out + r * kUnit,
                         m.out_stride);
  }
}

// Where a block is less than a cache line of the rows of the input, and these lie far apart: by
// whole lines, as in unit_transpose_avx2.cpp.
template <size_t kUnit>
void TransposeLines(const Matrix& m) {
  alignas(kZmmBytes) std::byte tile[kRows<kUnit> * kZmmBytes];
  for (size_t next_c = 0; next_c < m.cols; next_c += kRows<kUnit>) {
    const size_t c = Least(next_c, m.cols - kRows<kUnit>);
    for (size_t next_r = 0; next_r < m.rows; next_r += kRows<kUnit>) {
      const size_t r = Least(next_r, m.rows - kRows<kUnit>);
      const std::byte* from = m.in + r * m.in_stride + c * kUnit;
      for (size_t i = 0; i < kRows<kUnit>; ++i) {
        Store(tile + i * kZmmBytes, Load(from + i * m.in_stride));
      }
      TransposeRows<kUnit>(tile, kZmmBytes, kRows<kUnit>, m.out + c * m.out_stride + r * kUnit,
                           m.out_stride);
    }
  }
}

template <size_t kUnit>
void Transpose(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
               size_t out_stride) {
  if (rows < kRows<kUnit> || cols < kBlockCols) {
    return TransposeUnitsFor(Isa::kAvx2, kUnit)(in, in_stride, rows, cols, out, out_stride);
  }
  const Matrix matrix = {in, in_stride, rows, cols, out, out_stride};
  constexpr bool kBlockIsLine = kBlockCols * kUnit == kZmmBytes;
  if (!kBlockIsLine && in_stride >= out_stride && cols >= kRows<kUnit>) {
    return TransposeLines<kUnit>(matrix);
  }
  TransposeBlocks<kUnit>(matrix);
}

}  // namespace

const UnitTranspose kUnitTransposeAvx512 = {Transpose<1>, Transpose<2>, Transpose<4>};

}  // namespace prepack
