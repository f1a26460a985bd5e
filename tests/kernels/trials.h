#pragma once

// How every kernel of prepack/kernels/kernels.inc is called: for the twin test beside this, the
// fuzz target isa_twins, and bench_bricks. A kernel without a trial does not compile, and one with
// a trial is tested, fuzzed and measured.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/number_trials.h"
#include "kernels/trial.h"
#include "prepack/kernels/kernels.h"

namespace prepack {
namespace trials {

// What sums are added to.
inline void SetSums(uint8_t* sums, size_t count) {
  std::fill_n(As<int32_t>(sums), count, -1000003);
}

inline Trial unpack_gemv_fast(const TrialShape& shape) {
  const size_t chunks = shape.cols / kGemvFastCols;
  const size_t row = shape.option % kGemvFastRows;
  return {.in_bytes = (chunks + 1) * kGemvFastChunkBytes,
          .out_bytes = chunks * kGemvFastRowBytes,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.unpack_gemv_fast(in + row * kGemvFastRowBytes, chunks, out);
          }};
}

inline Trial ChangeAwqOrder(const TrialShape& shape, OrderAwqColumnsFn* KernelTable::*kernel) {
  const size_t channels = kAwqCodesPerWord * (1 + shape.cols / kAwqCodesPerWord);
  const size_t column_stride = ColumnBytes(channels) + shape.in_gap;
  const size_t out_stride = ColumnBytes(channels) + shape.out_gap;
  return {.in_bytes = StridedSize(shape.rows, ColumnBytes(channels), column_stride),
          .out_bytes = StridedSize(shape.rows, ColumnBytes(channels), out_stride),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            (kernels.*kernel)(in, column_stride, shape.rows, channels, out, out_stride);
          }};
}

inline Trial order_awq_columns(const TrialShape& shape) {
  return ChangeAwqOrder(shape, &KernelTable::order_awq_columns);
}

inline Trial disorder_awq_columns(const TrialShape& shape) {
  return ChangeAwqOrder(shape, &KernelTable::disorder_awq_columns);
}

inline Trial unpack_codes(const TrialShape& shape) {
  const uint32_t bits = std::array{1U, 2U, 3U, 5U, 6U, 7U}[shape.option % 6];
  const size_t count = shape.rows * shape.cols / 32;
  return {.in_bytes = (count * bits + 7) / 8,
          .out_bytes = bits <= 3 ? (count + 1) / 2 : count,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.unpack_codes(bits, in, count, out);
          }};
}

inline Trial join_words(const TrialShape& shape) {
  const uint32_t used = shape.option % 2 == 0 ? 30 : 28;
  const size_t count = shape.rows * shape.cols / 32;
  return {.in_bytes = 4 * count,
          .out_bytes = (count * used + 7) / 8,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.join_words(used, in, count, out);
          }};
}

inline Trial widen_codes(const TrialShape& shape) {
  CodePacking packing{.bits = static_cast<uint32_t>(2 + shape.option % 7),
                      .planar = shape.option / 7 % 2 == 1};
  packing.planar = packing.planar || (packing.bits >= 5 && packing.bits <= 7);
  const CodeUnit unit = UnitOf(packing);
  const size_t units = shape.rows / 8;
  const size_t channels = shape.cols;
  return {.in_bytes = units * unit.stored_words * channels * 4,
          .out_bytes = units * unit.wide_words * channels * 4,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.widen_codes(packing, As<uint32_t>(in), units, channels, As<uint32_t>(out));
          }};
}

// Where split columns have their channels is the instruction set's own affair, so they are joined
// again: word rows of `picks`, input channels counted in the words that were split.
inline Trial SplitAndJoin(const TrialShape& shape, bool in_order) {
  const size_t rows = 1 + shape.rows / 8;
  const size_t channels = kColumnChannels * (1 + shape.cols / kColumnChannels);
  const size_t column_stride = ColumnBytes(channels) + shape.in_gap;
  const size_t words_stride = channels + shape.out_gap / 4;
  std::vector<uint32_t> picks(8 * rows);
  for (size_t i = 0; i < picks.size(); ++i) {
    picks[i] = static_cast<uint32_t>(in_order ? i : (i * i + shape.option) % picks.size());
  }
  return {
      .in_bytes = StridedSize(rows, 4 * channels, 4 * words_stride),
      .out_bytes = StridedSize(rows, 4 * channels, 4 * words_stride),
      .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
        std::vector<uint8_t> columns(StridedSize(8 * rows, ColumnBytes(channels), column_stride));
        kernels.split_columns(As<std::byte>(in), 4 * words_stride, rows, channels, columns.data(),
                              column_stride);
        kernels.join_columns(columns.data(), column_stride, picks.data(), rows, channels,
                             As<uint32_t>(out), words_stride);
      }};
}

inline Trial split_columns(const TrialShape& shape) {
  return SplitAndJoin(shape, true);
}

inline Trial split_ordered_columns(const TrialShape& shape) {
  const size_t rows = 1 + shape.rows / 8;
  const size_t channels = kColumnChannels * (1 + shape.cols / kColumnChannels);
  const size_t row_stride = 4 * channels + shape.in_gap;
  const size_t column_stride = ColumnBytes(channels) + shape.out_gap;
  return {.in_bytes = StridedSize(rows, 4 * channels, row_stride),
          .out_bytes = StridedSize(8 * rows, ColumnBytes(channels), column_stride),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.split_ordered_columns(As<std::byte>(in), row_stride, rows, channels, out,
                                          column_stride);
          }};
}

inline Trial join_columns(const TrialShape& shape) {
  return SplitAndJoin(shape, false);
}

inline Trial join_awq_columns(const TrialShape& shape) {
  const size_t rows = shape.rows / 8;
  const size_t channels = kColumnChannels * (1 + shape.cols / kColumnChannels);
  const size_t column_stride = ColumnBytes(channels) + shape.in_gap;
  const size_t words_stride = channels + shape.out_gap / 4;
  return {.in_bytes = StridedSize(8 * rows, ColumnBytes(channels), column_stride),
          .out_bytes = StridedSize(rows, 4 * channels, 4 * words_stride),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.join_awq_columns(in, column_stride, rows, channels, As<uint32_t>(out),
                                     words_stride);
          }};
}

// Blocks of as many columns as `option` says, up to `cols` in all.
struct PairShape {
  explicit PairShape(const TrialShape& shape)
      : cols(shape.option == 0 ? 128
                               : kPairCols * (1 + shape.option % (kMostPairCols / kPairCols))),
        blocks(shape.cols / cols),
        row_bytes(blocks * cols / 2 + shape.in_gap),
        size_of_rows(StridedSize(kPairRows, blocks * cols / 2, row_bytes)) {}
  size_t cols, blocks, row_bytes, size_of_rows;
};

inline Trial rows_to_pairs(const TrialShape& shape) {
  const PairShape pairs(shape);
  return {.in_bytes = pairs.size_of_rows,
          .out_bytes = pairs.blocks * PairBlockBytes(pairs.cols),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.rows_to_pairs(in, pairs.row_bytes, pairs.cols, pairs.blocks, out);
          }};
}

inline Trial pairs_to_rows(const TrialShape& shape) {
  const PairShape pairs(shape);
  return {.in_bytes = pairs.blocks * PairBlockBytes(pairs.cols),
          .out_bytes = pairs.size_of_rows,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.pairs_to_rows(in, pairs.cols, pairs.blocks, pairs.row_bytes, out);
          }};
}

// Rows of 32 at a time. With an odd option they are two KiB apart, which goes another way.
struct HalvesShape {
  explicit HalvesShape(const TrialShape& shape)
      : cols(shape.cols / 2 * 2),
        row_bytes(shape.option % 2 == 1 ? (cols / 2 + 2047) / 2048 * 2048
                                        : cols / 2 + shape.in_gap),
        blocks(std::max<size_t>(shape.rows / kHalvesRows, 1)),
        size_of_rows(StridedSize(blocks * kHalvesRows, cols / 2, row_bytes)) {}
  size_t cols, row_bytes, blocks, size_of_rows;
};

inline Trial rows_to_halves(const TrialShape& shape) {
  const HalvesShape halves(shape);
  return {.in_bytes = halves.size_of_rows,
          .out_bytes = halves.blocks * HalvesBytes(halves.cols),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            for (size_t i = 0; i < halves.blocks; ++i) {
              kernels.rows_to_halves(in + i * kHalvesRows * halves.row_bytes, halves.row_bytes,
                                     halves.cols, out + i * HalvesBytes(halves.cols));
            }
          }};
}

inline Trial halves_to_rows(const TrialShape& shape) {
  const HalvesShape halves(shape);
  return {.in_bytes = halves.blocks * HalvesBytes(halves.cols),
          .out_bytes = halves.size_of_rows,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            for (size_t i = 0; i < halves.blocks; ++i) {
              kernels.halves_to_rows(in + i * HalvesBytes(halves.cols), halves.cols,
                                     halves.row_bytes, out + i * kHalvesRows * halves.row_bytes);
            }
          }};
}

// Columns back to back, where `out_gap` is 0.
struct ColumnsShape {
  ColumnsShape(const TrialShape& shape, size_t rows)
      : cols(shape.cols / 2 * 2),
        row_bytes(cols / 2 + shape.in_gap),
        stride(rows / 2 + shape.out_gap),
        size_of_rows(StridedSize(rows, cols / 2, row_bytes)),
        size_of_columns(StridedSize(cols, rows / 2, stride)),
        mask(shape.option % 2 == 1 ? 0x88 : 0) {}
  size_t cols, row_bytes, stride, size_of_rows, size_of_columns;
  uint8_t mask;
};

inline Trial rows_to_words(const TrialShape& shape) {
  const ColumnsShape block(shape, kTransposeRows);
  return {.in_bytes = block.size_of_rows,
          .out_bytes = block.size_of_columns,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.rows_to_words(in, block.row_bytes, block.cols, out, block.stride);
          }};
}

inline Trial words_to_rows(const TrialShape& shape) {
  const ColumnsShape block(shape, kTransposeRows);
  return {.in_bytes = block.size_of_columns,
          .out_bytes = block.size_of_rows,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.words_to_rows(in, block.stride, block.cols, block.row_bytes, out);
          }};
}

inline Trial rows_to_columns(const TrialShape& shape) {
  const ColumnsShape block(shape, kWideTransposeRows);
  return {.in_bytes = block.size_of_rows,
          .out_bytes = block.size_of_columns,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.rows_to_columns(in, block.row_bytes, block.cols, block.mask, out, block.stride);
          }};
}

inline Trial columns_to_rows(const TrialShape& shape) {
  const ColumnsShape block(shape, kWideTransposeRows);
  return {.in_bytes = block.size_of_columns,
          .out_bytes = block.size_of_rows,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.columns_to_rows(in, block.stride, block.cols, block.mask, block.row_bytes, out);
          }};
}

// Every place of a row, or, of some lengths, some of them more than once.
inline Trial sort_bytes(const TrialShape& shape) {
  const size_t rows = shape.rows % kSortedRows + 1;
  std::vector<uint32_t> places;
  for (size_t i = 0; i < shape.cols; ++i) {
    places.push_back(static_cast<uint32_t>((i * 7919 + shape.option) % shape.cols));
  }
  return {.in_bytes = rows * shape.cols,
          .out_bytes = rows * shape.cols,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            std::vector<uint64_t> words(shape.cols);
            kernels.sort_bytes(As<int8_t>(in), rows, shape.cols, places.data(), words.data(),
                               As<int8_t>(out));
          }};
}

inline Trial sum_rows(const TrialShape& shape) {
  const size_t stride = shape.cols + shape.in_gap;
  return {.in_bytes = StridedSize(shape.rows, shape.cols, stride),
          .out_bytes = shape.rows * sizeof(int32_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            SetSums(out, shape.rows);
            kernels.sum_rows(As<int8_t>(in), stride, shape.rows, shape.cols, As<int32_t>(out));
          }};
}

inline Trial Units(const TrialShape& shape, size_t unit) {
  const size_t in_stride = shape.cols * unit + shape.in_gap;
  const size_t out_stride = shape.rows * unit + shape.out_gap;
  return {.in_bytes = StridedSize(shape.rows, shape.cols * unit, in_stride),
          .out_bytes = StridedSize(shape.cols, shape.rows * unit, out_stride),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            TransposeUnits(kernels, unit)(As<std::byte>(in), in_stride, shape.rows, shape.cols,
                                          As<std::byte>(out), out_stride);
          }};
}

inline Trial transpose_bytes(const TrialShape& shape) {
  return Units(shape, 1);
}

inline Trial transpose_pairs(const TrialShape& shape) {
  return Units(shape, 2);
}

inline Trial transpose_words(const TrialShape& shape) {
  return Units(shape, 4);
}

inline Trial transpose_doubles(const TrialShape& shape) {
  return Units(shape, 8);
}

// The sums come first.
inline Trial transpose_summed_words(const TrialShape& shape) {
  Trial trial = Units(shape, 4);
  const size_t sum_bytes = shape.rows * sizeof(int32_t);
  trial.out_bytes += sum_bytes;
  trial.run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
    SetSums(out, shape.rows);
    kernels.transpose_summed_words(As<std::byte>(in), 4 * shape.cols + shape.in_gap, shape.rows,
                                   shape.cols, As<std::byte>(out + sum_bytes),
                                   4 * shape.rows + shape.out_gap, As<int32_t>(out));
  };
  return trial;
}

}  // namespace trials

struct KernelTrials {
  const char* kernel;
  Trial (*make)(const TrialShape& shape);
};

inline constexpr KernelTrials kKernelTrials[] = {
#define PREPACK_KERNEL(type, function, member, avx512, avx512vbmi) \
  KernelTrials{#member, trials::member},
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
};

// What bench_bricks measures: kernels that are not here with the default shape. 128 KiB are read,
// which stay in the L2 cache.
struct MeasuredShape {
  const char* kernel;
  const char* name;
  TrialShape shape;
};

inline constexpr MeasuredShape kMeasuredShapes[] = {
    {"transpose_bytes", "units of 1, 32 rows", {.rows = 32, .cols = 4096}},
    {"transpose_bytes", "units of 1, 32 rows, back", {.rows = 4096, .cols = 32}},
    {"transpose_pairs", "units of 2, 32 rows", {.rows = 32, .cols = 2048}},
    {"transpose_pairs", "units of 2, 32 rows, back", {.rows = 2048, .cols = 32}},
    {"transpose_words", "units of 4, 32 rows", {.rows = 32, .cols = 1024}},
    {"transpose_words", "units of 4, 32 rows, back", {.rows = 1024, .cols = 32}},
    {"transpose_bytes", "units of 1, 64 rows", {.rows = 64, .cols = 2048}},
    {"transpose_bytes", "units of 1, 64 rows, back", {.rows = 2048, .cols = 64}},
    {"transpose_words", "units of 4, 64 rows", {.rows = 64, .cols = 512}},
    {"transpose_words", "units of 4, 64 rows, back", {.rows = 512, .cols = 64}},
    {"transpose_doubles", "units of 8, 32 rows", {.rows = 32, .cols = 512}},
    {"transpose_doubles", "units of 8, 32 rows, back", {.rows = 512, .cols = 32}},
    {"rows_to_pairs", "nibble pairs", {.cols = 8192}},
    {"pairs_to_rows", "nibble pairs, back", {.cols = 8192}},
    {"rows_to_halves", "nibble halves", {.rows = 128, .cols = 2048}},
    {"halves_to_rows", "nibble halves, back", {.rows = 128, .cols = 2048}},
    {"rows_to_halves", "nibble halves, 4096 apart", {.cols = 8192}},
    {"halves_to_rows", "nibble halves, 4096 apart, back", {.cols = 8192}},
    {"rows_to_steps", "nibble steps, summed", {.cols = 32768}},
    {"rows_to_scaled_steps", "nibble steps, groups of 32", {.cols = 32768, .out_gap = 16}},
    {"rows_to_scaled_steps",
     "nibble steps, groups of 128",
     {.cols = 32768, .out_gap = 16, .option = 6}},
    {"steps_to_rows", "nibble steps, back", {.cols = 32768, .out_gap = 16, .option = 6}},
    {"sort_bytes", "bytes in another order", {.rows = 7, .cols = 16384}},
    {"sum_rows", "sums of bytes", {.rows = 32, .cols = 4096}},
    {"transpose_summed_words", "units of 4, 32 rows, summed", {.rows = 32, .cols = 1024}},
    {"unpack_gemv_fast", "codes of AWQ's gemv_fast", {.cols = 65536}},
    {"order_awq_columns", "columns of AWQ in order", {.rows = 256, .cols = 504}},
    {"disorder_awq_columns", "columns in AWQ's order", {.rows = 256, .cols = 504}},
    {"unpack_codes", "2 bits to nibbles", {.rows = 32, .cols = 65536, .option = 1}},
    {"unpack_codes", "3 bits to nibbles", {.rows = 32, .cols = 65536, .option = 2}},
    {"unpack_codes", "5 bits to bytes", {.rows = 32, .cols = 65536, .option = 3}},
    {"unpack_codes", "7 bits to bytes", {.rows = 32, .cols = 65536, .option = 5}},
    {"join_words", "words of 30 bits", {.rows = 32, .cols = 8192}},
    {"join_words", "words of 28 bits", {.rows = 32, .cols = 8192, .option = 1}},
    {"widen_codes", "codes of 2 bits", {.rows = 32, .cols = 8192}},
    {"widen_codes", "codes of 3 bits", {.rows = 32, .cols = 2048, .option = 1}},
    {"join_columns", "columns, split and joined", {.rows = 24, .cols = 8184}},
    {"split_ordered_columns", "columns in order", {.rows = 24, .cols = 8184}},
    {"join_awq_columns", "columns of AWQ", {.rows = 64, .cols = 4088}},
    {"rows_to_words", "nibbles, 16 rows, kernel", {.cols = 16384}},
    {"words_to_rows", "nibbles, 16 rows, kernel, back", {.cols = 16384}},
    {"rows_to_columns", "nibbles, 64 rows, kernel", {.cols = 4096}},
    {"columns_to_rows", "nibbles, 64 rows, kernel, back", {.cols = 4096}},
    {"add_figures", "sums of figures", {.rows = 4096}},
    {"add_differences", "sums of differences", {.rows = 4096}},
    {"add_float_products", "products of floats", {.rows = 64, .cols = 512}},
    {"add_pair_products", "products of pairs", {.rows = 64, .cols = 512}},
    {"fuse_products", "fused products", {.cols = 16384}},
    {"digest_scaled", "digests of scaled steps", {.cols = 16384, .option = 1}},
    {"digest_steps", "digests of steps", {.cols = 16384}},
    {"add_strip_digests", "digests of strips", {.cols = 2048}},
    {"scale_nibbles", "scaled nibbles", {.cols = 2048}},
    {"scale_nibble_lines", "scaled nibbles, lines", {.cols = 256}},
    {"split_small_fields", "fields of bytes", {.cols = 16384}},
    {"digest_small_scaled", "digests of small steps, scaled", {.cols = 128, .option = 5}},
    {"digest_small_steps", "digests of small steps", {.cols = 16384}},
    {"digest_nibbles", "digests of nibbles", {.cols = 2048}},
    {"digest_nibble_lines", "digests of nibbles, lines", {.cols = 256}},
    {"digest_quads", "digests of fours of bytes", {.cols = 2048}},
    {"digest_bytes", "digests of bytes", {.cols = 65536}},
    {"digest_byte_pairs", "digests of pairs of bytes", {.cols = 2048}},
    {"widen_quads", "fours of bytes", {.cols = 2048}},
};

}  // namespace prepack
