#ifndef PREPACK_TESTS_KERNELS_TRIALS_H_
#define PREPACK_TESTS_KERNELS_TRIALS_H_

// How every kernel of prepack/kernels/kernels.inc is called: for the twin test beside this, the
// fuzz target isa_twins, and bench_bricks. A kernel without a trial does not compile, and one with
// a trial is tested, fuzzed and measured.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "prepack/kernels/kernels.h"

namespace prepack {

// Any numbers make a shape: trials take them modulo what they allow.
struct TrialShape {
  size_t rows = 32;
  size_t cols = 1024;
  size_t in_gap = 0;  // bytes between the rows of what is read, as far as these may lie apart
  size_t out_gap = 0;
  size_t option = 0;  // what else there is to choose
};

struct Trial {
  size_t in_bytes = 0;
  size_t out_bytes = 0;
  // `kernels`: those of one instruction set.
  std::function<void(const KernelTable& kernels, const uint8_t* in, uint8_t* out)> run;
  // Makes something that the kernel takes of any bytes, where it does not take all.
  std::function<void(uint8_t* in)> prepare = [](uint8_t*) {};
};

// From the first of `rows` runs of `bytes` to the end of the last one.
constexpr size_t StridedSize(size_t rows, size_t bytes, size_t stride) {
  return rows == 0 || bytes == 0 ? 0 : (rows - 1) * stride + bytes;
}

namespace trials {

template <typename T>
T* As(uint8_t* bytes) {
  return reinterpret_cast<T*>(bytes);
}
template <typename T>
const T* As(const uint8_t* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

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

// Numbers without NaN: which of two NaN comes out of an addition is up to the compiler.
inline void MakeFloats(uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, bytes + 4 * i, sizeof value);
    value = std::isfinite(value) ? std::fmod(value, 0x1p40F) : 1;
    std::memcpy(bytes + 4 * i, &value, sizeof value);
  }
}

// Rows of x, then the strip of weights; their sums. `numbers` of x make one column.
template <typename Row, typename X, typename Sum>
std::vector<Row> StripRows(const uint8_t* in, uint8_t* out, size_t rows, size_t x_cols) {
  std::vector<Row> strip;
  for (size_t r = 0; r < rows; ++r) {
    strip.push_back({.x = As<X>(in) + r * x_cols, .sums = As<Sum>(out) + r * kStripChannels});
  }
  return strip;
}

inline Trial add_float_products(const TrialShape& shape) {
  const size_t x_count = shape.rows * shape.cols;
  const size_t w_count = shape.cols * kStripChannels;
  return {.in_bytes = (x_count + w_count) * sizeof(float),
          .out_bytes = shape.rows * kStripChannels * sizeof(float),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                const auto strip =
                    StripRows<FloatStripRow, float, float>(in, out, shape.rows, shape.cols);
                kernels.add_float_products(strip.data(), strip.size(), As<float>(in) + x_count,
                                           shape.cols);
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, x_count + w_count); }};
}

inline Trial add_pair_products(const TrialShape& shape) {
  const size_t x_count = shape.rows * 2 * shape.cols;
  const size_t w_count = 2 * shape.cols * kStripChannels;
  return {.in_bytes = (x_count + w_count) * sizeof(int16_t),
          .out_bytes = shape.rows * kStripChannels * sizeof(int32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                const auto strip =
                    StripRows<PairStripRow, int16_t, int32_t>(in, out, shape.rows, 2 * shape.cols);
                kernels.add_pair_products(strip.data(), strip.size(), As<int16_t>(in) + x_count,
                                          shape.cols);
              },
          .prepare =
              [=](uint8_t* in) {
                for (size_t i = 1; i < 2 * x_count; i += 4) {  // no two neighbours of −2^15
                  if (in[i] == 0x80 && in[i - 1] == 0) in[i] = 0x81;
                }
              }};
}

inline Trial fuse_products(const TrialShape& shape) {
  const size_t count = shape.cols;
  return {.in_bytes = 2 * count * sizeof(float),
          .out_bytes = count * sizeof(float),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                kernels.fuse_products(As<float>(in), As<float>(in) + count, count, As<float>(out));
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, 2 * count); }};
}

inline NibbleScales ScalesOfTrial(const uint8_t* in, const TrialShape& shape) {
  NibbleScales scales{};
  std::memcpy(scales.zeros, in, sizeof scales.zeros);
  std::memcpy(scales.scales, in + sizeof scales.zeros, sizeof scales.scales);
  scales.flip = shape.option / 2 % 16;
  scales.to_bf16 = shape.option % 2 == 0;
  return scales;
}

inline Trial split_fields(const TrialShape& shape) {
  const uint32_t bits = shape.option % 2 == 0 ? 4 : 8;
  const size_t words = shape.cols;
  return {.in_bytes = words * 4,
          .out_bytes = words * (32 / bits) * sizeof(float),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.split_fields(As<uint32_t>(in), words, bits, 1 << (bits - 1), As<float>(out));
          }};
}

inline Trial digest_scaled(const TrialShape& shape) {
  const size_t count = shape.cols;
  const auto rounding = static_cast<Bf16Rounding>(shape.option % 4);
  return {.in_bytes = (2 * count + 1) * sizeof(float),
          .out_bytes = sizeof(uint32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                *As<uint32_t>(out) = kernels.digest_scaled(As<float>(in) + 1, count, *As<float>(in),
                                                           rounding, As<uint32_t>(in) + 1 + count);
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, count + 1); }};
}

inline Trial digest_steps(const TrialShape& shape) {
  const size_t count = shape.cols;
  return {.in_bytes = count * (sizeof(float) + sizeof(int16_t)),
          .out_bytes = sizeof(uint32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                *As<uint32_t>(out) = kernels.digest_steps(As<float>(in), count,
                                                          As<int16_t>(in + count * sizeof(float)));
              },
          .prepare =
              [=](uint8_t* in) {
                for (size_t i = 0; i < count; ++i) {
                  const auto step = static_cast<float>(static_cast<int>(in[4 * i]) - 128);
                  std::memcpy(in + 4 * i, &step, sizeof step);
                }
              }};
}

inline Trial add_strip_digests(const TrialShape& shape) {
  const size_t count = shape.cols;
  return {.in_bytes = count * (kStripChannels + 1) * sizeof(float),
          .out_bytes = kStripChannels * sizeof(uint32_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            std::fill_n(As<uint32_t>(out), kStripChannels, 7);
            kernels.add_strip_digests(As<float>(in), count,
                                      As<uint32_t>(in) + count * kStripChannels, As<uint32_t>(out));
          }};
}

inline Trial scale_nibbles(const TrialShape& shape) {
  const size_t stride = kStripChannels / 2 + shape.in_gap;
  return {.in_bytes = sizeof(NibbleScales) + StridedSize(shape.cols, kStripChannels / 2, stride),
          .out_bytes = shape.cols * kStripChannels * sizeof(float),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                kernels.scale_nibbles(in + sizeof(NibbleScales), stride, shape.cols,
                                      ScalesOfTrial(in, shape), As<float>(out));
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, 2 * kStripChannels); }};
}

inline Trial scale_nibble_lines(const TrialShape& shape) {
  const size_t stride = 4 * shape.cols + shape.in_gap;
  return {.in_bytes = sizeof(NibbleScales) + StridedSize(kStripChannels, 4 * shape.cols, stride),
          .out_bytes = 8 * shape.cols * kStripChannels * sizeof(float),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                kernels.scale_nibble_lines(in + sizeof(NibbleScales), stride, shape.cols,
                                           ScalesOfTrial(in, shape), As<float>(out));
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, 2 * kStripChannels); }};
}

inline Trial split_small_fields(const TrialShape& shape) {
  const uint32_t bits = shape.option % 2 == 0 ? 4 : 8;
  return {.in_bytes = shape.cols,
          .out_bytes = shape.cols * (8 / bits),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.split_small_fields(in, shape.cols, bits, 1 << (bits - 1), As<int8_t>(out));
          }};
}

// Scales, factors, and steps, which differ by 15 or less, or by anything.
inline Trial digest_small_scaled(const TrialShape& shape) {
  const size_t groups = shape.rows;
  const size_t group = shape.option / 16 % 2 == 0 ? shape.cols / 32 * 32 : shape.cols;
  const size_t count = groups * group;
  const size_t before = groups * sizeof(float);
  const auto rounding = static_cast<Bf16Rounding>(1 + shape.option % 3);
  const bool near = shape.option / 4 % 4 != 0;
  return {.in_bytes = before + 3 * count,
          .out_bytes = sizeof(uint32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                const uint8_t* factors = in + before;
                *As<uint32_t>(out) = kernels.digest_small_scaled(As<int8_t>(factors + 2 * count),
                                                                 group, As<float>(in), groups,
                                                                 rounding, As<int16_t>(factors));
              },
          .prepare =
              [=](uint8_t* in) {
                MakeFloats(in, groups);
                uint8_t* steps = in + before + 2 * count;
                for (size_t i = 0; near && i < count; ++i) {
                  steps[i] = static_cast<uint8_t>(steps[i] % 16 + shape.option);
                }
              }};
}

inline Trial digest_small_steps(const TrialShape& shape) {
  const size_t count = shape.cols;
  return {.in_bytes = 3 * count,
          .out_bytes = sizeof(uint32_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            *As<uint32_t>(out) =
                kernels.digest_small_steps(As<int8_t>(in + 2 * count), count, As<int16_t>(in));
          }};
}

// `count` input channels, whose codes take `code_bytes`.
template <typename Run>
Trial DigestTrial(const TrialShape& shape, size_t count, size_t code_bytes, Run run) {
  return {.in_bytes = sizeof(NibbleScales) + 2 * count + code_bytes,
          .out_bytes = kStripChannels * sizeof(uint32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                std::fill_n(As<uint32_t>(out), kStripChannels, 7);
                const uint8_t* factors = in + sizeof(NibbleScales);
                run(kernels, factors + 2 * count, ScalesOfTrial(in, shape), As<int16_t>(factors),
                    As<uint32_t>(out));
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, 2 * kStripChannels); }};
}

inline Trial digest_nibbles(const TrialShape& shape) {
  const size_t stride = kStripChannels / 2 + shape.in_gap;
  return DigestTrial(shape, shape.cols, StridedSize(shape.cols, kStripChannels / 2, stride),
                     [=](const KernelTable& kernels, const uint8_t* codes,
                         const NibbleScales& scales, const int16_t* factors, uint32_t* out) {
                       kernels.digest_nibbles(codes, stride, shape.cols, scales, factors, out);
                     });
}

inline Trial digest_nibble_lines(const TrialShape& shape) {
  const size_t stride = 4 * shape.cols + shape.in_gap;
  return DigestTrial(shape, 8 * shape.cols, StridedSize(kStripChannels, 4 * shape.cols, stride),
                     [=](const KernelTable& kernels, const uint8_t* codes,
                         const NibbleScales& scales, const int16_t* factors, uint32_t* out) {
                       kernels.digest_nibble_lines(codes, stride, shape.cols, scales, factors, out);
                     });
}

inline Trial widen_quads(const TrialShape& shape) {
  const size_t stride = 4 * kStripChannels + shape.in_gap;
  return {.in_bytes = StridedSize(shape.cols, 4 * kStripChannels, stride),
          .out_bytes = shape.cols * 4 * kStripChannels * sizeof(int16_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.widen_quads(As<int8_t>(in), stride, shape.cols, As<int16_t>(out));
          }};
}

}  // namespace trials

struct KernelTrials {
  const char* kernel;
  Trial (*make)(const TrialShape& shape);
};

inline constexpr KernelTrials kKernelTrials[] = {
#define PREPACK_KERNEL(type, function, member, avx2, avx512, avx512vbmi) \
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
    {"add_float_products", "products of floats", {.rows = 64, .cols = 512}},
    {"add_pair_products", "products of pairs", {.rows = 64, .cols = 512}},
    {"fuse_products", "fused products", {.cols = 16384}},
    {"split_fields", "fields of words", {.cols = 16384}},
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
    {"widen_quads", "fours of bytes", {.cols = 2048}},
};

}  // namespace prepack

#endif  // PREPACK_TESTS_KERNELS_TRIALS_H_
