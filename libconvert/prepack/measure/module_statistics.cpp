// Merges and judges what was counted of a module.

#include "prepack/measure/module_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "prepack/base/hash.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/panel.h"

namespace prepack {

void SpreadSums::Merge(const SpreadSums& other) {
  groups += other.groups;
  scale += other.scale;
  codes += other.codes;
  scale_squares += other.scale_squares;
  codes_squares += other.codes_squares;
  products += other.products;
}

SpreadSums::Slope SpreadSums::Fit() const {
  const auto count = static_cast<double>(groups);
  if (groups < 2) return {};
  const double scale_variance = scale_squares / count - scale / count * (scale / count);
  const double codes_variance = codes_squares / count - codes / count * (codes / count);
  constexpr double kNoVariance = 1e-6;
  if (!(scale_variance > kNoVariance && codes_variance > kNoVariance)) return {};
  const double covariance = products / count - scale / count * (codes / count);
  return {.slope = covariance / codes_variance,
          .error = std::sqrt(scale_variance / codes_variance / count)};
}

void ModuleStatistics::Merge(const ModuleStatistics& other) {
  weights += other.weights;
  histogram.Merge(other.histogram);
  scales += other.scales;
  negative_scales += other.negative_scales;
  zero_scales += other.zero_scales;
  imprecise_scales += other.imprecise_scales;
  huge_scales += other.huge_scales;
  scales_outside_f16 += other.scales_outside_f16;
  scale_exponents.Merge(other.scale_exponents);
  fine_scales += other.fine_scales;
  scales_hash += other.scales_hash;
  min_scale = std::min(min_scale, other.min_scale);
  max_scale = std::max(max_scale, other.max_scale);
  stray_bits += other.stray_bits;
  spread.Merge(other.spread);
  windows.Merge(other.windows);
  zero_points += other.zero_points;
  low_zero_points += other.low_zero_points;
  high_zero_points += other.high_zero_points;
  sum += other.sum;
  sum_squares += other.sum_squares;
}

uint8_t ModuleStatistics::CommonestCode() const {
  const std::array<uint64_t, 256> counts = histogram.All();
  return static_cast<uint8_t>(std::ranges::max_element(counts) - counts.begin());
}

double ModuleStatistics::CommonestFraction() const {
  if (weights == 0) return 0;
  return static_cast<double>(histogram[CommonestCode()]) / static_cast<double>(weights);
}

double ModuleStatistics::SaturatedFraction(const Scheme& scheme) const {
  if (weights == 0) return 0;
  uint64_t saturated = 0;
  switch (scheme.code) {
    case CodeType::kU4:
    case CodeType::kU8:
      saturated = histogram[0] + histogram[(1U << scheme.bits) - 1];
      break;
    case CodeType::kS8: {
      // Quantizers clamp to −2^(b−1) or, for symmetry, to one above it.
      const unsigned high = (1U << (scheme.bits - 1)) - 1;
      saturated = histogram[high] + histogram[(256U - high) & 0xFFU] + histogram[255U - high];
      break;
    }
    case CodeType::kF8E4M3:
      saturated = histogram[0x7E] + histogram[0xFE];
      break;
    case CodeType::kF4E2M1:  // all groups have some at the ends
    case CodeType::kBF16:    // has no codes
      break;
  }
  return static_cast<double>(saturated) / static_cast<double>(weights);
}

uint32_t ModuleStatistics::DistinctCodes() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(histogram.All(), [](uint64_t count) { return count != 0; }));
}

double ModuleStatistics::MeanShift() const {
  if (sum_squares == 0 || weights == 0) return 0;
  const auto count = static_cast<double>(weights);
  return std::abs(sum / count) / std::sqrt(sum_squares / count);
}

double ModuleStatistics::RootMeanSquare() const {
  return weights == 0 ? 0 : std::sqrt(sum_squares / static_cast<double>(weights));
}

CheckFigures FiguresOf(const ModuleStatistics& statistics, const Scheme& scheme) {
  return {.counts = CheckFigures::Counts{.negative_scales = statistics.negative_scales,
                                         .zero_scales = statistics.zero_scales,
                                         .imprecise_scales = statistics.imprecise_scales,
                                         .huge_scales = statistics.huge_scales,
                                         .scales_outside_f16 = statistics.scales_outside_f16,
                                         .zero_points = statistics.zero_points,
                                         .low_zero_points = statistics.low_zero_points,
                                         .high_zero_points = statistics.high_zero_points},
          .scales = statistics.scales,
          .fine_scales = statistics.fine_scales,
          .codes_hash = statistics.windows.codes_hash,
          .scales_hash = statistics.scales_hash,
          .commonest_fraction = statistics.CommonestFraction(),
          .saturated_fraction = statistics.SaturatedFraction(scheme),
          .mean_shift = statistics.MeanShift(),
          .root_mean_square = statistics.RootMeanSquare(),
          .min_scale = statistics.min_scale,
          .max_scale = statistics.max_scale,
          .distinct_codes = statistics.DistinctCodes(),
          .commonest_code = statistics.CommonestCode()};
}

std::vector<uint8_t> CodesOf(const Scheme& scheme) {
  if (scheme.code == CodeType::kBF16) return {};
  const std::array<float, 256>& values = CodeValues(scheme.code);
  const bool is_signed = scheme.code == CodeType::kS8;
  const unsigned count = 1U << scheme.bits;
  std::vector<uint8_t> codes;
  for (unsigned i = 0; i < count; ++i) {
    const auto code = static_cast<uint8_t>(is_signed ? i - count / 2 : i);
    if (!std::isnan(values[code])) codes.push_back(code);
  }
  std::ranges::stable_sort(codes, {}, [&](uint8_t code) { return values[code]; });
  return codes;
}

void HashScales(uint64_t n0, uint64_t rows, std::span<const float> scales,
                ModuleStatistics& statistics) {
  ForPanelRows(std::as_bytes(scales), rows, [&](uint64_t row, std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    statistics.scales_hash += Xxh3(text).low * (2 * (n0 + row) + 1);
  });
  constexpr uint32_t kMantissa = (1U << 23) - 1;
  statistics.fine_scales += static_cast<uint64_t>(std::ranges::count_if(
      scales, [](float scale) { return (std::bit_cast<uint32_t>(scale) & kMantissa) != 0; }));
}

Status ReadRows(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                StatisticsBuffers& buffers) {
  const Scheme& scheme = linear.scheme();
  const PanelRange range{.n0 = n0, .rows = rows, .k0 = 0, .cols = linear.k()};
  buffers.codes.resize(PanelBytes(scheme.code, range));
  buffers.scales.resize(rows * linear.groups());
  buffers.zero_points.resize(rows * linear.groups());
  PREPACK_TRY(linear.ReadCodes(range, buffers.codes));
  PREPACK_TRY(linear.ReadScales(n0, rows, buffers.scales));
  return linear.ReadZeroPoints(n0, rows, buffers.zero_points);
}

}  // namespace prepack
