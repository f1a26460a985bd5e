#ifndef PREPACK_KERNELS_UNIT_TRANSPOSE_RUNS_H_
#define PREPACK_KERNELS_UNIT_TRANSPOSE_RUNS_H_

// For unit_transpose_*.cpp, and only there: what a matrix is cut into, whatever the registers.

// Blocks and runs that would stick out at the end are moved back over their neighbours, and write
// some units twice. `Block` transposes kRows rows of kCols units:
//
//     static void Transpose(const std::byte* in, size_t in_stride, std::byte* out,
//                           size_t out_stride);

#include <cstddef>
#include <cstdint>

#include "prepack/kernels/row_sums.h"
#include "prepack/kernels/runs.h"
#include "prepack/kernels/unit_transpose.h"

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

// How runs of rows come side by side.
struct CopyOnly {
  template <size_t kRunBytes>
  [[gnu::always_inline]] void Runs(const std::byte* from, size_t stride, size_t /*first_row*/,
                                   size_t rows, std::byte* to) const {
    CopyRuns<kRunBytes>(from, stride, rows, to, kRunBytes);
  }
};

// `CodeSum` copies kBytes codes at a time, and adds them to a sum of 16 bits for every two codes:
//
//     void CopyAndAdd(const std::byte* from, std::byte* to);
//     int32_t Sum() const;
template <typename CodeSum>
struct CopyAndSum {
  int32_t* sums;  // of rows: what is copied is added

  template <size_t kRunBytes>
  [[gnu::always_inline]] void Runs(const std::byte* from, size_t stride, size_t first_row,
                                   size_t rows, std::byte* to) const {
    static_assert(kRunBytes / CodeSum::kBytes * 2 * 128 <= 32768, "sums of pairs fit");
    for (size_t r = 0; r < rows; ++r) {
      CodeSum sum;
      for (size_t i = 0; i < kRunBytes; i += CodeSum::kBytes) {
        sum.CopyAndAdd(from + r * stride + i, to + r * kRunBytes + i);
      }
      sums[first_row + r] += sum.Sum();
    }
  }
};

// Where rows of the input lie further apart than those of the output: a run of each row of a block
// at a time.
template <typename Block, size_t kRunBytes, typename Copy = CopyOnly>
void TransposeInputRuns(const Matrix& m, const Copy& copy = {}) {
  constexpr size_t kRun = kRunBytes / Block::kUnit;
  alignas(kLineBytes) std::byte tile[Block::kRows * kRunBytes];
  for (size_t next_c = 0; next_c < m.cols; next_c += kRun) {
    const size_t c = Least(next_c, m.cols - kRun);
    for (size_t next_r = 0; next_r < m.rows; next_r += Block::kRows) {
      const size_t r = Least(next_r, m.rows - Block::kRows);
      copy.template Runs<kRunBytes>(m.in + r * m.in_stride + c * Block::kUnit, m.in_stride, r,
                                    Block::kRows, tile);
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

// Whether runs of `row_bytes` in all are long ones. `stride`: of the other side.
template <typename Block>
bool IsLongRun(size_t row_bytes, size_t stride) {
  constexpr bool kWholeLines = Block::kCols * Block::kUnit >= kLineBytes;
  return row_bytes >= kLongRun && (kWholeLines || kLongRun / Block::kUnit * stride <= kHalfCache);
}

template <typename Block>
void TransposeMatrix(const Matrix& m) {
  const bool by_input = m.in_stride >= m.out_stride;
  const size_t row_bytes = (by_input ? m.cols : m.rows) * Block::kUnit;
  const size_t other_stride = by_input ? m.out_stride : m.in_stride;
  if (row_bytes < kShortRun) return TransposeBlocks<Block>(m);
  const bool long_run = IsLongRun<Block>(row_bytes, other_stride);
  if (by_input) {
    return long_run ? TransposeInputRuns<Block, kLongRun>(m)
                    : TransposeInputRuns<Block, kShortRun>(m);
  }
  return long_run ? TransposeOutputRuns<Block, kLongRun>(m)
                  : TransposeOutputRuns<Block, kShortRun>(m);
}

// Some rows and columns of `m`.
template <size_t kUnit>
Matrix Part(const Matrix& m, size_t first_row, size_t rows, size_t first_col, size_t cols) {
  return {m.in + first_row * m.in_stride + first_col * kUnit,   m.in_stride, rows, cols,
          m.out + first_col * m.out_stride + first_row * kUnit, m.out_stride};
}

// What transposes and sums separately.
struct SeparateKernels {
  TransposeUnitsFn transpose;
  SumRowsFn sum_rows;

  void operator()(const Matrix& m, int32_t* sums) const {
    transpose(m.in, m.in_stride, m.rows, m.cols, m.out, m.out_stride);
    sum_rows(reinterpret_cast<const int8_t*>(m.in), m.in_stride, m.rows, 4 * m.cols, sums);
  }
};

// Sums are those of whole runs of whole blocks of rows, none of them twice; the rest is left to
// `separate`.
template <typename Block, size_t kRunBytes, typename CodeSum>
void TransposeSummedRuns(const Matrix& m, int32_t* sums, const SeparateKernels& separate) {
  constexpr size_t kUnit = Block::kUnit;
  constexpr size_t kRun = kRunBytes / kUnit;
  const size_t rows = m.rows / Block::kRows * Block::kRows;
  const size_t cols = m.cols / kRun * kRun;
  TransposeInputRuns<Block, kRunBytes>(Part<kUnit>(m, 0, rows, 0, cols), CopyAndSum<CodeSum>{sums});
  separate(Part<kUnit>(m, 0, rows, cols, m.cols - cols), sums);
  separate(Part<kUnit>(m, rows, m.rows - rows, 0, m.cols), sums + rows);
}

template <typename Block, typename CodeSum>
void TransposeSummed(const Matrix& m, int32_t* sums, const SeparateKernels& separate) {
  return IsLongRun<Block>(m.cols * Block::kUnit, m.out_stride)
             ? TransposeSummedRuns<Block, kLongRun, CodeSum>(m, sums, separate)
             : TransposeSummedRuns<Block, kShortRun, CodeSum>(m, sums, separate);
}

}  // namespace
}  // namespace prepack

#endif  // PREPACK_KERNELS_UNIT_TRANSPOSE_RUNS_H_
