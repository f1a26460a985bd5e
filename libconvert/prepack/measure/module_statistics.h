#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "prepack/base/shared_value.h"
#include "prepack/base/status.h"
#include "prepack/measure/byte_counts.h"
#include "prepack/measure/code_windows.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// The median of at least one value: the mean of the middle two if their number is even.
inline double Median(std::vector<double> values) {
  const size_t half = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// Numbers that are counted while they pass: how many, their sum and that of their squares.

template <typename Count>
struct Moments {
  Count count = 0;
  Count sum = 0;
  Count squares = 0;

  void Add(Count value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  void Add(const Moments& other) {
    count += other.count;
    sum += other.sum;
    squares += other.squares;
  }
  double Mean() const {
    return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
  }
  double Variance() const {
    if (count == 0) return 0;
    return std::max(0.0,
                    static_cast<double>(squares) / static_cast<double>(count) - Mean() * Mean());
  }
  double Deviation() const { return std::sqrt(Variance()); }
};

// Statistics of the numbers of one quantized module, measured in one pass over codes, scales and
// zero points.

// How scales go with the spread of the codes that they multiply, group by group. A quantizer takes
// the scale from the largest weight of a group, so where that is large beside the others, the scale
// is large and the codes are small: on a log scale, the one falls by as much as the other rises.
// Scales of other groups, as after rows were moved, know nothing of the codes.
struct SpreadSums {
  uint64_t groups = 0;
  double scale = 0;  // Σ log2 |scale|
  double codes = 0;  // Σ log2 of the rms of the codes
  double scale_squares = 0;
  double codes_squares = 0;
  double products = 0;

  void Merge(const SpreadSums& other);
  // By how much log2 |scale| rises where that of the codes rises by one, about -1; and the standard
  // error of what it would be if they were unrelated.
  struct Slope {
    double slope = 0;
    double error = std::numeric_limits<double>::infinity();
  };
  Slope Fit() const;
};

struct ModuleStatistics {
  uint64_t weights = 0;
  ByteCounts<uint64_t> histogram;  // by code, as the canonical layout holds it

  // Scales, one per output channel and group (shared ones count for each channel).
  uint64_t scales = 0;
  uint64_t negative_scales = 0;
  uint64_t zero_scales = 0;
  // Scales of groups that have weights, so near the lower end of the stored dtype that fewer than
  // the 8 bits of a bf16 are left.
  uint64_t imprecise_scales = 0;
  uint64_t huge_scales = 0;         // above kHugeScale
  uint64_t scales_outside_f16 = 0;  // that become infinite or zero in f16, of groups with weights
  // By the 8 bits of their exponent in f32, magnitudes: those of e ≥ 1 lie in [2^(e-127),
  // 2^(e-126)).
  ByteCounts<uint64_t> scale_exponents;
  uint64_t fine_scales = 0;                                  // that are not powers of two
  uint64_t scales_hash = 0;                                  // of all scales, and of where they are
  float min_scale = std::numeric_limits<float>::infinity();  // magnitudes
  float max_scale = 0;

  uint64_t zero_points = 0;       // 0 when symmetric
  uint64_t low_zero_points = 0;   // equal to the lowest code
  uint64_t high_zero_points = 0;  // equal to the highest code

  uint64_t stray_bits = 0;  // set in padding, see QuantizedLinear::CountStrayBits

  SpreadSums spread;     // not of scales that output channels share
  WindowCounts windows;  // only when counted, see code_windows.h

  double sum = 0;          // of W
  double sum_squares = 0;  // of W²

  void Merge(const ModuleStatistics& other);

  uint8_t CommonestCode() const;
  double CommonestFraction() const;
  // Share of the codes at either end of their range; for FP8, at ±448.
  double SaturatedFraction(const Scheme& scheme) const;
  // Number of different codes.
  uint32_t DistinctCodes() const;
  bool ScalesAllEqual() const { return negative_scales == 0 && min_scale == max_scale; }
  // |mean(W)| / rms(W); 0 when all weights are 0.
  double MeanShift() const;
  double RootMeanSquare() const;  // of W
};

// Below this many weights a module is too small to be judged by shares or by its size.
inline constexpr uint64_t kMinWeights = 1024;

// The size of a module, rms(W) · √K, by which it multiplies what comes in. Working models have it
// near 1, whatever their width: training keeps activations in range. It is 0.2 to 5 in real and in
// newly initialised models; the bars leave room for models whose activations are scaled (a factor
// of 12 in some), and catch a factor of a thousand.
inline constexpr double kLargestSize = 30;
inline constexpr double kSmallestSize = 0.01;

// What a report keeps of the statistics of a module, and what modules are compared by. There may be
// hundreds of thousands of modules, so that their histograms are kept by scheme (check.h).
struct CheckFigures {
  // Most modules have none of these, or as many as their neighbours.
  struct Counts {
    uint64_t negative_scales = 0;
    uint64_t zero_scales = 0;
    uint64_t imprecise_scales = 0;
    uint64_t huge_scales = 0;
    uint64_t scales_outside_f16 = 0;
    uint64_t zero_points = 0;
    uint64_t low_zero_points = 0;
    uint64_t high_zero_points = 0;

    friend bool operator==(const Counts&, const Counts&) = default;
  };
  SharedValue<Counts> counts;
  uint64_t scales = 0;
  uint64_t fine_scales = 0;
  uint64_t codes_hash = 0;
  uint64_t scales_hash = 0;
  double commonest_fraction = 0;
  double saturated_fraction = 0;
  double mean_shift = 0;
  double root_mean_square = 0;
  float min_scale = 0;
  float max_scale = 0;
  uint32_t distinct_codes = 0;
  uint8_t commonest_code = 0;
};

CheckFigures FiguresOf(const ModuleStatistics& statistics, const Scheme& scheme);

// A scale above this multiplies even the smallest step to something that no trained weight is.
inline constexpr float kHugeScale = 1e4F;

// The codes of a scheme in the order of their values, as the canonical layout holds them. None of
// kBF16, which has none; no NaN.
std::vector<uint8_t> CodesOf(const Scheme& scheme);

// The numbers of some output channels, input channels in k_order.
struct RowNumbers {
  std::span<const std::byte> codes;
  std::span<const float> scales;
  std::span<const uint8_t> zero_points;
};

struct StatisticsBuffers {
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;

  // Rows [first, first + rows) of all `count` that were read.
  RowNumbers Rows(uint64_t first, uint64_t rows, uint64_t count) const {
    const auto part = [&](const auto& numbers) {
      const uint64_t each = numbers.size() / count;
      return std::span(numbers).subspan(first * each, rows * each);
    };
    return {part(codes), part(scales), part(zero_points)};
  }
};

// Adds output channels that begin with number `n0` to scales_hash and fine_scales.
void HashScales(uint64_t n0, uint64_t rows, std::span<const float> scales,
                ModuleStatistics& statistics);

// Adds `rows` output channels of `k` weights each that were read. Not of kBF16.
void CountRows(const Scheme& scheme, DType stored_scale_dtype, uint64_t k, uint64_t rows,
               const RowNumbers& numbers, ModuleStatistics& statistics);

// Reads output channels [n0, n0 + rows). Errors are those of the reader.
Status ReadRows(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                StatisticsBuffers& buffers);

}  // namespace prepack
