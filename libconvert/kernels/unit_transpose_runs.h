// For unit_transpose_*.cpp, and only there: what a matrix is cut into, whatever the registers.

#ifndef PREPACK_KERNELS_UNIT_TRANSPOSE_RUNS_H_
#define PREPACK_KERNELS_UNIT_TRANSPOSE_RUNS_H_

// Blocks and runs that would stick out at the end are moved back over their neighbours, and write
// some units twice. `Block` transposes kRows rows of kCols units:
//
//     static void Transpose(const std::byte* in, size_t in_stride, std::byte* out,
//                           size_t out_stride);

#include <cstddef>

#include "kernels/runs.h"

namespace prepack {
namespace {  // a copy for each instruction set

struct Matrix {
  const std::byte* in;
  size_t in_stride;
  size_t rows;
  size_t cols;
  std::byte* out;
  size_t out_stride;
};

inline size_t Least(size_t a, size_t b) {
  return a < b ? a : b;
}

// Block by block, straight from the input to the output.
template <typename Block>
void TransposeBlocks(const Matrix& m) {
  for (size_t next_c = 0; next_c < m.cols; next_c += Block::kCols) {
    const size_t c = Least(next_c, m.cols - Block::kCols);
    for (size_t next_r = 0; next_r < m.rows; next_r += Block::kRows) {
      const size_t r = Least(next_r, m.rows - Block::kRows);
      Block::Transpose(m.in + r * m.in_stride + c * Block::kUnit, m.in_stride,
                       m.out + c * m.out_stride + r * Block::kUnit, m.out_stride);
    }
  }
}

// Where rows of the input lie further apart than those of the output: a run of each row of a block
// at a time.
template <typename Block, size_t kRunBytes>
void TransposeInputRuns(const Matrix& m) {
  constexpr size_t kRun = kRunBytes / Block::kUnit;
  alignas(kLineBytes) std::byte tile[Block::kRows * kRunBytes];
  for (size_t next_c = 0; next_c < m.cols; next_c += kRun) {
    const size_t c = Least(next_c, m.cols - kRun);
    for (size_t next_r = 0; next_r < m.rows; next_r += Block::kRows) {
      const size_t r = Least(next_r, m.rows - Block::kRows);
      CopyRuns<kRunBytes>(m.in + r * m.in_stride + c * Block::kUnit, m.in_stride, Block::kRows,
                          tile, kRunBytes);
      std::byte* out = m.out + c * m.out_stride + r * Block::kUnit;
      for (size_t i = 0; i < kRun; i += Block::kCols) {
        Block::Transpose(tile + i * Block::kUnit, kRunBytes, out + i * m.out_stride, m.out_stride);
      }
    }
  }
}

// The other way round: a run of each of as many rows of the output as a block has columns.
template <typename Block, size_t kRunBytes>
void TransposeOutputRuns(const Matrix& m) {
  constexpr size_t kRun = kRunBytes / Block::kUnit;
  alignas(kLineBytes) std::byte tile[Block::kCols * kRunBytes];
  for (size_t next_r = 0; next_r < m.rows; next_r += kRun) {
    const size_t r = Least(next_r, m.rows - kRun);
    for (size_t next_c = 0; next_c < m.cols; next_c += Block::kCols) {
      const size_t c = Least(next_c, m.cols - Block::kCols);
      const std::byte* in = m.in + r * m.in_stride + c * Block::kUnit;
      for (size_t i = 0; i < kRun; i += Block::kRows) {
        Block::Transpose(in + i * m.in_stride, m.in_stride, tile + i * Block::kUnit, kRunBytes);
      }
      CopyRuns<kRunBytes>(tile, kRunBytes, Block::kCols,
                          m.out + c * m.out_stride + r * Block::kUnit, m.out_stride);
    }
  }
}

// Bytes of a run. Blocks that are no whole cache line wide visit the lines of the other side more
// than once: what a run is made into, or of, must stay in half an L1 cache of 32 KiB meanwhile.
inline constexpr size_t kLongRun = 512;
inline constexpr size_t kShortRun = 256;
inline constexpr size_t kHalfCache = size_t{16} * 1024;

template <typename Block>
void TransposeMatrix(const Matrix& m) {
  constexpr bool kWholeLines = Block::kCols * Block::kUnit >= kLineBytes;
  const bool by_input = m.in_stride >= m.out_stride;
  const size_t row_bytes = (by_input ? m.cols : m.rows) * Block::kUnit;
  const size_t other_stride = by_input ? m.out_stride : m.in_stride;
  if (row_bytes < kShortRun) return TransposeBlocks<Block>(m);
  const bool long_run = row_bytes >= kLongRun &&
                        (kWholeLines || kLongRun / Block::kUnit * other_stride <= kHalfCache);
  if (by_input) {
    return long_run ? TransposeInputRuns<Block, kLongRun>(m)
                    : TransposeInputRuns<Block, kShortRun>(m);
  }
  return long_run ? TransposeOutputRuns<Block, kLongRun>(m)
                  : TransposeOutputRuns<Block, kShortRun>(m);
}

}  // namespace
}  // namespace prepack

#endif  // PREPACK_KERNELS_UNIT_TRANSPOSE_RUNS_H_
