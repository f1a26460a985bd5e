#pragma once

// The bodies of unit_transpose.h. A matrix is cut into blocks, and those of rows that lie far apart
// go through a tile in runs.
//
// Blocks are of 16/U columns, which are 16 bytes of a row, by twice as many rows. AVX-512 takes
// blocks of 64 bytes by as many rows for units of 4 and 8, which is a sixth faster. Only matrices
// smaller than a block are left to the level below.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

template <size_t kUnit>
void TransposeUnitsOf(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                      std::byte* out, size_t out_stride) {
  for (size_t c = 0; c < cols; ++c) {
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(out + c * out_stride + r * kUnit, in + r * in_stride + c * kUnit, kUnit);
    }
  }
}

}  // namespace

#else

namespace {

// Blocks and runs at the end write some units twice (ForPieces). `Block` transposes kRows rows of
// kCols units:
//
//     static void Transpose(const std::byte* in, size_t in_stride, std::byte* out,
//                           size_t out_stride);

struct UnitMatrix {
  const std::byte* in;
  size_t in_stride;
  size_t rows;
  size_t cols;
  std::byte* out;
  size_t out_stride;
};

// Block by block, straight from the input to the output.
template <typename Block>
void TransposeBlocks(const UnitMatrix& m) {
  ForPieces(m.cols, Block::kCols, [&](size_t c) {
    ForPieces(m.rows, Block::kRows, [&](size_t r) {
      Block::Transpose(m.in + r * m.in_stride + c * Block::kUnit, m.in_stride,
                       m.out + c * m.out_stride + r * Block::kUnit, m.out_stride);
    });
  });
}

// How runs of rows come side by side.
struct CopyOnly {
  template <size_t kRunBytes>
  [[gnu::always_inline]] void Runs(const std::byte* from, size_t stride, size_t /*first_row*/,
                                   size_t rows, std::byte* to) const {
    CopyRuns<kRunBytes, kVectorBytes>(from, stride, rows, to, kRunBytes);
  }
};

// The sum of some codes, in 16 bits for every two. Copying leaves the units that add idle;
// shuffling would not.
class CodeSum {
 public:
  [[gnu::always_inline]] CodeSum() : pairs_(Bytes(0)) {}

  [[gnu::always_inline]] void CopyAndAdd(const std::byte* from, std::byte* to) {
    const Vector codes = Load(from);
    Store(to, codes);
    pairs_ = Add16(pairs_, AddSignedTwos(codes));
  }

  [[gnu::always_inline]] int32_t Sum() const { return Total(AddFours(pairs_)); }

 private:
  Vector pairs_;
};

struct CopyAndSum {
  int32_t* sums;  // of rows: what is copied is added

  template <size_t kRunBytes>
  [[gnu::always_inline]] void Runs(const std::byte* from, size_t stride, size_t first_row,
                                   size_t rows, std::byte* to) const {
    static_assert(kRunBytes / kVectorBytes * 2 * 128 <= 32768, "sums of pairs fit");
    for (size_t r = 0; r < rows; ++r) {
      CodeSum sum;
      for (size_t i = 0; i < kRunBytes; i += kVectorBytes) {
        sum.CopyAndAdd(from + r * stride + i, to + r * kRunBytes + i);
      }
      sums[first_row + r] += sum.Sum();
    }
  }
};

// Where rows of the input lie further apart than those of the output: a run of each row of a block
// at a time.
template <typename Block, size_t kRunBytes, typename Copy = CopyOnly>
void TransposeInputRuns(const UnitMatrix& m, const Copy& copy = {}) {
  constexpr size_t kRun = kRunBytes / Block::kUnit;
  alignas(kLineBytes) std::byte tile[Block::kRows * kRunBytes];
  ForPieces(m.cols, kRun, [&](size_t c) {
    ForPieces(m.rows, Block::kRows, [&](size_t r) {
      copy.template Runs<kRunBytes>(m.in + r * m.in_stride + c * Block::kUnit, m.in_stride, r,
                                    Block::kRows, tile);
      std::byte* out = m.out + c * m.out_stride + r * Block::kUnit;
      for (size_t i = 0; i < kRun; i += Block::kCols) {
        Block::Transpose(tile + i * Block::kUnit, kRunBytes, out + i * m.out_stride, m.out_stride);
      }
    });
  });
}

// The other way round: a run of each of as many rows of the output as a block has columns.
template <typename Block, size_t kRunBytes>
void TransposeOutputRuns(const UnitMatrix& m) {
  constexpr size_t kRun = kRunBytes / Block::kUnit;
  alignas(kLineBytes) std::byte tile[Block::kCols * kRunBytes];
  ForPieces(m.rows, kRun, [&](size_t r) {
    ForPieces(m.cols, Block::kCols, [&](size_t c) {
      const std::byte* in = m.in + r * m.in_stride + c * Block::kUnit;
      for (size_t i = 0; i < kRun; i += Block::kRows) {
        Block::Transpose(in + i * m.in_stride, m.in_stride, tile + i * Block::kUnit, kRunBytes);
      }
      CopyRuns<kRunBytes, kVectorBytes>(tile, kRunBytes, Block::kCols,
                                        m.out + c * m.out_stride + r * Block::kUnit, m.out_stride);
    });
  });
}

// Bytes of a run. Blocks that are no whole cache line wide visit the lines of the other side more
// than once: what a run is made into, or of, must stay in half an L1 cache of 32 KiB meanwhile.
constexpr size_t kLongRun = 512;
constexpr size_t kShortRun = 256;
constexpr size_t kHalfCache = size_t{16} * 1024;

// Whether runs of `row_bytes` in all are long ones. `stride`: of the other side.
template <typename Block>
bool IsLongRun(size_t row_bytes, size_t stride) {
  constexpr bool kWholeLines = Block::kCols * Block::kUnit >= kLineBytes;
  return row_bytes >= kLongRun && (kWholeLines || kLongRun / Block::kUnit * stride <= kHalfCache);
}

template <typename Block>
void TransposeMatrix(const UnitMatrix& m) {
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

#ifdef PREPACK_AVX512

template <size_t kUnitBytes>
struct UnitBlock {
  static constexpr size_t kUnit = kUnitBytes;
  static constexpr size_t kCols = kVectorBytes / kUnit;
  static constexpr size_t kRows = kCols;

  [[gnu::always_inline]] static void Transpose(const std::byte* in, size_t in_stride,
                                               std::byte* out, size_t out_stride) {
    constexpr size_t kLaneUnits = kCols / kLanes;
    Vector reg[kLanes][kLaneUnits];
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

#else

// The two lanes hold rows that lie half a block apart, so that what is transposed within lanes is
// 32 bytes of a row of the output. Of units of 8 bytes four lanes side by side are a block: with
// one, each cache line is visited four times, and the way back takes a sixth longer.
template <size_t kUnitBytes>
struct UnitBlock {
  static constexpr size_t kUnit = kUnitBytes;
  static constexpr size_t kSide = kLaneBytes / kUnit;
  static constexpr size_t kCols = kUnit == 8 ? kLineBytes / kUnit : kSide;
  static constexpr size_t kRows = 2 * kSide;

  // In a lane, the index of a unit is (row, column). As many rotations of its bits as the column
  // has make it (column, row).
  [[gnu::always_inline]] static void Transpose(const std::byte* in, size_t in_stride,
                                               std::byte* out, size_t out_stride) {
    for (size_t col = 0; col < kCols; col += kSide, in += kLaneBytes) {
      Vector reg[kSide];
      for (size_t i = 0; i < kSide; ++i) {
        reg[i] = LoadTwoLanes(in + i * in_stride, in + (i + kSide) * in_stride);
      }
      for (size_t bits = 1; bits < kSide; bits *= 2) RotateIndex<kUnit>(reg);
      for (size_t i = 0; i < kSide; ++i) Store(out + (col + i) * out_stride, reg[i]);
    }
  }
};

#endif

template <size_t kUnit>
void TransposeUnitsOf(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                      std::byte* out, size_t out_stride) {
  using Block = UnitBlock<kUnit>;
  if (rows >= Block::kRows && cols >= Block::kCols) {
    return TransposeMatrix<Block>({in, in_stride, rows, cols, out, out_stride});
  }
  TransposeUnits(Below(), kUnit)(in, in_stride, rows, cols, out, out_stride);
}

}  // namespace

#endif

#ifndef PREPACK_AVX512  // whose blocks would have more rows than registers

void TransposeBytes(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
                    size_t out_stride) {
  TransposeUnitsOf<1>(in, in_stride, rows, cols, out, out_stride);
}

void TransposePairs(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
                    size_t out_stride) {
  TransposeUnitsOf<2>(in, in_stride, rows, cols, out, out_stride);
}

#endif

void TransposeWords(const std::byte* in, size_t in_stride, size_t rows, size_t cols, std::byte* out,
                    size_t out_stride) {
  TransposeUnitsOf<4>(in, in_stride, rows, cols, out, out_stride);
}

void TransposeDoubles(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                      std::byte* out, size_t out_stride) {
  TransposeUnitsOf<8>(in, in_stride, rows, cols, out, out_stride);
}

#ifdef PREPACK_SCALAR

void TransposeSummedWords(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                          std::byte* out, size_t out_stride, int32_t* sums) {
  TransposeWords(in, in_stride, rows, cols, out, out_stride);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < 4 * cols; ++i) sums[r] += static_cast<int8_t>(in[r * in_stride + i]);
  }
}

#else

namespace {

// Some rows and columns of `m`.
template <size_t kUnit>
UnitMatrix Part(const UnitMatrix& m, size_t first_row, size_t rows, size_t first_col, size_t cols) {
  return {m.in + first_row * m.in_stride + first_col * kUnit,   m.in_stride, rows, cols,
          m.out + first_col * m.out_stride + first_row * kUnit, m.out_stride};
}

void TransposeAndSum(const UnitMatrix& m, int32_t* sums) {
  TransposeWords(m.in, m.in_stride, m.rows, m.cols, m.out, m.out_stride);
  SumRows(reinterpret_cast<const int8_t*>(m.in), m.in_stride, m.rows, 4 * m.cols, sums);
}

// Sums are those of whole runs of whole blocks of rows, none of them twice; the rest is
// transposed and summed one after the other.
template <typename Block, size_t kRunBytes>
void TransposeSummedRuns(const UnitMatrix& m, int32_t* sums) {
  constexpr size_t kUnit = Block::kUnit;
  constexpr size_t kRun = kRunBytes / kUnit;
  const size_t rows = m.rows / Block::kRows * Block::kRows;
  const size_t cols = m.cols / kRun * kRun;
  TransposeInputRuns<Block, kRunBytes>(Part<kUnit>(m, 0, rows, 0, cols), CopyAndSum{sums});
  TransposeAndSum(Part<kUnit>(m, 0, rows, cols, m.cols - cols), sums);
  TransposeAndSum(Part<kUnit>(m, rows, m.rows - rows, 0, m.cols), sums + rows);
}

template <typename Block>
void TransposeSummed(const UnitMatrix& m, int32_t* sums) {
  return IsLongRun<Block>(m.cols * Block::kUnit, m.out_stride)
             ? TransposeSummedRuns<Block, kLongRun>(m, sums)
             : TransposeSummedRuns<Block, kShortRun>(m, sums);
}

}  // namespace

void TransposeSummedWords(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                          std::byte* out, size_t out_stride, int32_t* sums) {
  TransposeSummed<UnitBlock<4> >({in, in_stride, rows, cols, out, out_stride}, sums);
}

#endif

}  // namespace prepack::PREPACK_LEVEL
