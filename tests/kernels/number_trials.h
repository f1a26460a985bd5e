#pragma once

// Trials of the kernels that compute: products, weights of codes, and digests.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/trial.h"
#include "prepack/kernels/kernels.h"

namespace prepack::trials {

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

// Groups of 1 to 4 steps, by `option`; as many of them as `cols` hold, and a gap between what they
// become. With an odd option the last row comes first.
struct StepShape {
  explicit StepShape(const TrialShape& shape)
      : groups{.steps = 1 + shape.option / 2 % 4,
               .groups = shape.cols / (kNibbleStepCols * (1 + shape.option / 2 % 4)),
               .stride = (1 + shape.option / 2 % 4) * kNibbleStepBytes + shape.out_gap},
        row_bytes(groups.groups * groups.steps * kNibbleStepRowBytes + shape.in_gap),
        size_of_rows(StridedSize(kNibbleStepRows, row_bytes - shape.in_gap, row_bytes)),
        size_of_steps(StridedSize(groups.groups, groups.steps * kNibbleStepBytes, groups.stride)),
        reversed(shape.option % 2 == 1) {}

  template <typename Byte>
  std::array<Byte*, kNibbleStepRows> RowsOf(Byte* first) const {
    std::array<Byte*, kNibbleStepRows> rows;
    for (size_t n = 0; n < kNibbleStepRows; ++n) {
      rows[n] = first + (reversed ? kNibbleStepRows - 1 - n : n) * row_bytes;
    }
    return rows;
  }

  StepGroups groups;
  size_t row_bytes, size_of_rows, size_of_steps;
  bool reversed;
};

// The sums come first.
inline Trial rows_to_steps(const TrialShape& shape) {
  const StepShape steps(shape);
  constexpr size_t kSumBytes = kNibbleStepRows * sizeof(int32_t);
  return {.in_bytes = steps.size_of_rows,
          .out_bytes = kSumBytes + steps.size_of_steps,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            std::fill_n(As<int32_t>(out), kNibbleStepRows, 0x7FFFFFFF);
            kernels.rows_to_steps(steps.RowsOf(in).data(), steps.groups, out + kSumBytes,
                                  As<int32_t>(out));
          }};
}

// Scales, then rows.
inline Trial rows_to_scaled_steps(const TrialShape& shape) {
  const StepShape steps(shape);
  const size_t scales = steps.groups.groups * kNibbleStepRows;
  constexpr size_t kSumBytes = kNibbleStepRows * sizeof(float);
  return {.in_bytes = scales * sizeof(float) + steps.size_of_rows,
          .out_bytes = kSumBytes + steps.size_of_steps,
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                std::fill_n(As<float>(out), kNibbleStepRows, 0.1F);
                kernels.rows_to_scaled_steps(steps.RowsOf(in + scales * sizeof(float)).data(),
                                             steps.groups, As<float>(in), out + kSumBytes,
                                             As<float>(out));
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, scales); }};
}

inline Trial steps_to_rows(const TrialShape& shape) {
  const StepShape steps(shape);
  return {.in_bytes = steps.size_of_steps,
          .out_bytes = steps.size_of_rows,
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.steps_to_rows(in, steps.groups, steps.RowsOf(out).data());
          }};
}

inline Trial add_figures(const TrialShape& shape) {
  const size_t stride = kFigureChannels + shape.in_gap % 8;
  const size_t count = StridedSize(shape.rows, kFigureChannels, stride);
  return {.in_bytes = count * (sizeof(double) + sizeof(float)),
          .out_bytes = sizeof(FigureLanes),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                FigureLanes lanes;
                kernels.add_figures(As<double>(in), As<float>(in + count * sizeof(double)), stride,
                                    shape.rows, lanes);
                std::memcpy(out, &lanes, sizeof(lanes));
              },
          .prepare =
              [=](uint8_t* in) {
                float* judged = As<float>(in + count * sizeof(double));
                MakeFloats(in + count * sizeof(double), count);
                for (size_t i = 0; i < count; ++i) {
                  As<double>(in)[i] = 1.001 * static_cast<double>(judged[i]);
                }
              }};
}

// What each side holds one of: equal numbers, and others.
inline Trial add_differences(const TrialShape& shape) {
  const size_t count = shape.rows * kDifferenceLanes;
  const DifferenceBounds bounds{.tolerance = 0x1p-8,
                                .relative = static_cast<double>(shape.option % 4) / 2};
  return {.in_bytes = 2 * count * sizeof(float),
          .out_bytes = sizeof(DifferenceLanes),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                DifferenceLanes lanes;
                kernels.add_differences(As<float>(in), As<float>(in) + count, shape.rows, bounds,
                                        lanes);
                std::memcpy(out, &lanes, sizeof(lanes));
              },
          .prepare =
              [=](uint8_t* in) {
                MakeFloats(in, 2 * count);
                for (size_t i = 0; i < count; i += 3) As<float>(in)[count + i] = As<float>(in)[i];
              }};
}

// Vectors one after the other; the last few floats are no lane.
inline Trial dot_floats(const TrialShape& shape) {
  const size_t count = shape.cols;
  return {.in_bytes = 2 * count * sizeof(float),
          .out_bytes = sizeof(double),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                *As<double>(out) = kernels.dot_floats(As<float>(in), As<float>(in) + count, count);
              },
          .prepare = [=](uint8_t* in) { MakeFloats(in, 2 * count); }};
}

// The values, then the bytes; counts, if there are any, then sums.
inline Trial sum_nibbles(const TrialShape& shape) {
  const size_t counts = shape.option % 2 == 0 ? kNibbleCodes * sizeof(uint64_t) : 0;
  return {.in_bytes = sizeof(NibbleValues) + shape.cols * kNibbleSumBytes,
          .out_bytes = counts + shape.cols * sizeof(uint64_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            std::fill_n(out, counts, uint8_t{1});
            kernels.sum_nibbles(in + sizeof(NibbleValues), shape.cols, *As<NibbleValues>(in),
                                As<uint64_t>(out + counts),
                                counts == 0 ? nullptr : As<uint64_t>(out));
          }};
}

// What sums are less by, and then those of groups.
inline Trial split_group_sums(const TrialShape& shape) {
  const size_t count = shape.cols;
  return {.in_bytes = (1 + count) * sizeof(uint64_t),
          .out_bytes = 2 * count * sizeof(double),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            const GroupUnits units{.less = in[0],
                                   .unit = 1 / static_cast<double>(1 + shape.option % 2)};
            kernels.split_group_sums(As<uint64_t>(in) + 1, count, units, As<double>(out),
                                     As<double>(out) + count);
          }};
}

// Zero points; codes and their squares, of which some groups have none; scales, some of them zero.
// Scales end where memory does, so that they are aligned.
inline Trial weigh_groups(const TrialShape& shape) {
  const size_t count = shape.cols;
  const size_t sums_bytes = 2 * count * sizeof(double);
  return {.in_bytes = count + sums_bytes + count * sizeof(float),
          .out_bytes = sizeof(uint64_t) + 5 * count * sizeof(double),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                const auto list = [&](size_t i) { return As<double>(out) + 1 + i * count; };
                std::memcpy(list(0), in + count, sums_bytes);
                const GroupNumbers numbers{.scales = As<float>(in + count + sums_bytes),
                                           .zero_points = in,
                                           .codes = static_cast<double>(16 + shape.option % 4)};
                *As<uint64_t>(out) = kernels.weigh_groups(numbers, count,
                                                          {.sums = list(0),
                                                           .squares = list(1),
                                                           .weight_squares = list(2),
                                                           .scale_logs = list(3),
                                                           .code_logs = list(4)});
              },
          .prepare =
              [=](uint8_t* in) {
                uint8_t* sums = in + count;
                for (size_t i = 0; i < 2 * count; ++i, sums += sizeof(double)) {
                  const double number = sums[0] % 4 * 3000 + sums[1];
                  std::memcpy(sums, &number, sizeof number);
                }
                MakeFloats(sums, count);
                for (size_t i = 0; i < count; i += 5) std::memset(sums + 4 * i, 0, 4);
              }};
}

// The squares, then the rows.
inline Trial add_nibble_columns(const TrialShape& shape) {
  const size_t bytes = shape.cols / 2 * 2;
  const size_t stride = bytes + shape.in_gap;
  return {.in_bytes = kNibbleCodes + StridedSize(shape.rows, bytes, stride),
          .out_bytes = 4 * bytes * sizeof(uint16_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                std::fill_n(out, 4 * bytes * sizeof(uint16_t), uint8_t{1});
                NibbleColumnSums sums{};
                for (size_t q = 0; q < 4; ++q) {
                  sums.codes[q] = As<uint16_t>(out) + q * bytes / 2;
                  sums.squares[q] = As<uint16_t>(out) + (4 + q) * bytes / 2;
                }
                kernels.add_nibble_columns(in + kNibbleCodes, stride, shape.rows, bytes, in, sums);
              },
          .prepare =
              [](uint8_t* in) {
                for (size_t i = 0; i < kNibbleCodes; ++i) in[i] %= 86;
              }};
}

inline Trial sum_byte_codes(const TrialShape& shape) {
  return {.in_bytes = shape.cols,
          .out_bytes = sizeof(ByteSums),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            *As<ByteSums>(out) =
                kernels.sum_byte_codes(in, shape.cols, static_cast<uint8_t>(shape.option));
          }};
}

inline Trial sum_fp8_codes(const TrialShape& shape) {
  return {.in_bytes = shape.cols,
          .out_bytes = sizeof(Fp8Sums),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            *As<Fp8Sums>(out) = kernels.sum_fp8_codes(in, shape.cols);
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

// Of an input whose last part has `last` bytes and ends where the input does, as the trials demand:
// the bytes before it, at least `least`, so that a T at the beginning is aligned.
template <typename T>
size_t BytesBefore(size_t least, size_t last) {
  return least + (alignof(T) - (least + last) % alignof(T)) % alignof(T);
}

inline Trial digest_steps(const TrialShape& shape) {
  const size_t count = shape.cols;
  const size_t before = BytesBefore<float>(count * sizeof(float), count * sizeof(int16_t));
  return {.in_bytes = before + count * sizeof(int16_t),
          .out_bytes = sizeof(uint32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                *As<uint32_t>(out) =
                    kernels.digest_steps(As<float>(in), count, As<int16_t>(in + before));
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
  const size_t scales = groups * sizeof(float);
  const size_t before = BytesBefore<float>(scales + count * sizeof(int16_t), count);
  const auto rounding = static_cast<Bf16Rounding>(1 + shape.option % 3);
  const bool near = shape.option / 4 % 4 != 0;
  return {.in_bytes = before + count,
          .out_bytes = sizeof(uint32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                *As<uint32_t>(out) =
                    kernels.digest_small_scaled(As<int8_t>(in + before), group, As<float>(in),
                                                groups, rounding, As<int16_t>(in + scales));
              },
          .prepare =
              [=](uint8_t* in) {
                MakeFloats(in, groups);
                uint8_t* steps = in + before;
                for (size_t i = 0; near && i < count; ++i) {
                  steps[i] = static_cast<uint8_t>(steps[i] % 16 + shape.option);
                }
              }};
}

inline Trial digest_small_steps(const TrialShape& shape) {
  const size_t count = shape.cols;
  const size_t before = BytesBefore<int16_t>(count * sizeof(int16_t), count);
  return {.in_bytes = before + count,
          .out_bytes = sizeof(uint32_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            *As<uint32_t>(out) =
                kernels.digest_small_steps(As<int8_t>(in + before), count, As<int16_t>(in));
          }};
}

// `count` input channels, whose codes take `code_bytes`.
template <typename Run>
Trial DigestTrial(const TrialShape& shape, size_t count, size_t code_bytes, Run run) {
  const size_t before =
      BytesBefore<float>(sizeof(NibbleScales) + count * sizeof(int16_t), code_bytes);
  return {.in_bytes = before + code_bytes,
          .out_bytes = kStripChannels * sizeof(uint32_t),
          .run =
              [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
                std::fill_n(As<uint32_t>(out), kStripChannels, 7);
                run(kernels, in + before, ScalesOfTrial(in, shape),
                    As<int16_t>(in + sizeof(NibbleScales)), As<uint32_t>(out));
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

inline Trial digest_quads(const TrialShape& shape) {
  const size_t stride = 4 * kStripChannels + shape.in_gap;
  const size_t factors = 4 * shape.cols;
  return {.in_bytes = 2 * factors + StridedSize(shape.cols, 4 * kStripChannels, stride),
          .out_bytes = kStripChannels * sizeof(uint32_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            std::fill_n(As<uint32_t>(out), kStripChannels, 7);
            kernels.digest_quads(As<int8_t>(in + 2 * factors), stride, shape.cols, As<int16_t>(in),
                                 As<uint32_t>(out));
          }};
}

// The weights, the factors, and then the codes, which leave those aligned.
inline Trial digest_bytes(const TrialShape& shape) {
  const size_t count = shape.cols;
  const size_t codes = sizeof(ByteWeights) + count * sizeof(int16_t) + count % 2;
  return {.in_bytes = codes + count,
          .out_bytes = sizeof(uint32_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            *As<uint32_t>(out) = kernels.digest_bytes(in + codes, count, *As<ByteWeights>(in),
                                                      As<int16_t>(in + sizeof(ByteWeights)));
          }};
}

inline Trial digest_byte_pairs(const TrialShape& shape) {
  constexpr size_t kPairBytes = 2 * kBytePairChannels;
  const size_t stride = kPairBytes + shape.in_gap;
  const size_t codes = sizeof(ByteWeights) + 2 * shape.cols * sizeof(int16_t);
  return {.in_bytes = codes + StridedSize(shape.cols, kPairBytes, stride),
          .out_bytes = kBytePairChannels * sizeof(uint32_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            std::fill_n(As<uint32_t>(out), kBytePairChannels, 7);
            kernels.digest_byte_pairs(in + codes, stride, shape.cols, *As<ByteWeights>(in),
                                      As<int16_t>(in + sizeof(ByteWeights)), As<uint32_t>(out));
          }};
}

inline Trial widen_quads(const TrialShape& shape) {
  const size_t stride = 4 * kStripChannels + shape.in_gap;
  return {.in_bytes = StridedSize(shape.cols, 4 * kStripChannels, stride),
          .out_bytes = shape.cols * 4 * kStripChannels * sizeof(int16_t),
          .run = [=](const KernelTable& kernels, const uint8_t* in, uint8_t* out) {
            kernels.widen_quads(As<int8_t>(in), stride, shape.cols, As<int16_t>(out));
          }};
}

}  // namespace prepack::trials
