#include "check/module_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/float_convert.h"
#include "canonical/dequantize.h"
#include "canonical/panel.h"

namespace prepack {
namespace {

// Of the codes of one group: count, Σ code, Σ code².
struct GroupSums {
  uint64_t count = 0;
  double sum = 0;
  double squares = 0;
};

// Of both codes of a byte, for nibbles.
struct NibbleSums {
  std::array<uint16_t, 256> sum{};
  std::array<uint16_t, 256> squares{};
};

constexpr NibbleSums MakeNibbleSums() {
  NibbleSums sums;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned low = byte & 15U;
    const unsigned high = byte >> 4;
    sums.sum[byte] = static_cast<uint16_t>(low + high);
    sums.squares[byte] = static_cast<uint16_t>(low * low + high * high);
  }
  return sums;
}

constexpr NibbleSums kNibbleSums = MakeNibbleSums();

using Histogram = std::array<uint64_t, 256>;

// Codes [first, end) of a row of nibbles. Whole bytes are counted in `bytes`, single nibbles in
// `codes`.
GroupSums SumNibbles(const std::byte* row, uint64_t first, uint64_t end, Histogram& bytes,
                     Histogram& codes) {
  GroupSums sums{.count = end - first};
  uint64_t sum = 0;
  uint64_t squares = 0;
  const auto add_single = [&](unsigned code) {
    ++codes[code];
    sum += code;
    squares += uint64_t{code} * code;
  };
  if (first % 2 != 0) add_single(std::to_integer<unsigned>(row[first / 2]) >> 4);
  for (uint64_t i = (first + 1) / 2; i < end / 2; ++i) {
    const auto byte = std::to_integer<uint8_t>(row[i]);
    ++bytes[byte];
    sum += kNibbleSums.sum[byte];
    squares += kNibbleSums.squares[byte];
  }
  if (end % 2 != 0 && end > first) add_single(std::to_integer<unsigned>(row[end / 2]) & 15U);
  sums.sum = static_cast<double>(sum);
  sums.squares = static_cast<double>(squares);
  return sums;
}

GroupSums SumBytes(const std::byte* row, uint64_t first, uint64_t end,
                   const std::array<float, 256>& values, Histogram& codes) {
  GroupSums sums{.count = end - first};
  for (uint64_t j = first; j < end; ++j) {
    const auto code = std::to_integer<uint8_t>(row[j]);
    ++codes[code];
    const double value = values[code];
    sums.sum += value;
    sums.squares += value * value;
  }
  return sums;
}

// The smallest magnitude that a float of this dtype still holds with the 8 significant bits of a
// bf16; smaller ones are subnormals that lose bits.
float SmallestPrecise(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-17F;  // subnormals are multiples of 2^-24
    case DType::kF32:
      return 0x1p-142F;  // of 2^-149
    default:
      return 0x1p-126F;  // bf16: the smallest normal
  }
}

void CountScale(float scale, bool has_weights, float smallest_precise,
                ModuleStatistics& statistics) {
  const float magnitude = std::abs(scale);
  ++statistics.scales;
  if (scale < 0) ++statistics.negative_scales;
  if (magnitude == 0) ++statistics.zero_scales;
  if (magnitude > kHugeScale) ++statistics.huge_scales;
  ++statistics.scale_exponents[std::bit_cast<uint32_t>(magnitude) >> 23];
  statistics.min_scale = std::min(statistics.min_scale, magnitude);
  statistics.max_scale = std::max(statistics.max_scale, magnitude);
  if (!has_weights || magnitude == 0) return;
  if (magnitude < smallest_precise) ++statistics.imprecise_scales;
  const float narrowed = F16ToF32(F32ToF16(magnitude));
  if (narrowed == 0 || std::isinf(narrowed)) ++statistics.scales_outside_f16;
}

}  // namespace

void ModuleStatistics::Merge(const ModuleStatistics& other) {
  weights += other.weights;
  for (size_t i = 0; i < histogram.size(); ++i) histogram[i] += other.histogram[i];
  scales += other.scales;
  negative_scales += other.negative_scales;
  zero_scales += other.zero_scales;
  imprecise_scales += other.imprecise_scales;
  huge_scales += other.huge_scales;
  scales_outside_f16 += other.scales_outside_f16;
  for (size_t i = 0; i < scale_exponents.size(); ++i) {
    scale_exponents[i] += other.scale_exponents[i];
  }
  min_scale = std::min(min_scale, other.min_scale);
  max_scale = std::max(max_scale, other.max_scale);
  stray_bits += other.stray_bits;
  zero_points += other.zero_points;
  low_zero_points += other.low_zero_points;
  high_zero_points += other.high_zero_points;
  sum += other.sum;
  sum_squares += other.sum_squares;
}

uint8_t ModuleStatistics::CommonestCode() const {
  return static_cast<uint8_t>(std::ranges::max_element(histogram) - histogram.begin());
}

double ModuleStatistics::CommonestFraction() const {
  if (weights == 0) return 0;
  return static_cast<double>(*std::ranges::max_element(histogram)) / static_cast<double>(weights);
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
      // Quantizers clamp to −2^(b−1) or, to be symmetric, to one above it.
      const unsigned high = (1U << (scheme.bits - 1)) - 1;
      saturated = histogram[high] + histogram[(256U - high) & 0xFFU] + histogram[255U - high];
      break;
    }
    case CodeType::kF8E4M3:
      saturated = histogram[0x7E] + histogram[0xFE];
      break;
    case CodeType::kBF16:  // has no codes
      break;
  }
  return static_cast<double>(saturated) / static_cast<double>(weights);
}

uint32_t ModuleStatistics::DistinctCodes() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(histogram, [](uint64_t count) { return count != 0; }));
}

double ModuleStatistics::MeanShift() const {
  if (sum_squares == 0 || weights == 0) return 0;
  const auto count = static_cast<double>(weights);
  return std::abs(sum / count) / std::sqrt(sum_squares / count);
}

std::vector<uint8_t> CodesOf(const Scheme& scheme) {
  if (scheme.code == CodeType::kBF16) return {};
  const std::array<float, 256>& values = CodeValues(scheme.code);
  const bool is_signed = scheme.code == CodeType::kS8;
  const unsigned count = scheme.code == CodeType::kF8E4M3 ? 256 : 1U << scheme.bits;
  std::vector<uint8_t> codes;
  for (unsigned i = 0; i < count; ++i) {
    const auto code = static_cast<uint8_t>(is_signed ? i - count / 2 : i);
    if (!std::isnan(values[code])) codes.push_back(code);
  }
  std::ranges::stable_sort(codes, {}, [&](uint8_t code) { return values[code]; });
  return codes;
}

void CountRows(const Scheme& scheme, DType stored_scale_dtype, uint64_t k, uint64_t rows,
               const StatisticsBuffers& numbers, ModuleStatistics& statistics) {
  const uint64_t groups = CeilDiv(k, scheme.group_size);
  const std::array<float, 256>& values = CodeValues(scheme.code);
  const float smallest_precise = SmallestPrecise(stored_scale_dtype);
  const auto highest = static_cast<uint8_t>((1U << scheme.bits) - 1);
  Histogram bytes{};
  for (uint64_t row = 0; row < rows; ++row) {
    const std::byte* codes = numbers.codes.data() + row * PanelRowBytes(scheme.code, k);
    for (uint64_t g = 0; g < groups; ++g) {
      const uint64_t first = g * scheme.group_size;
      const uint64_t end = std::min(k, first + scheme.group_size);
      const GroupSums sums = IsNibble(scheme.code)
                                 ? SumNibbles(codes, first, end, bytes, statistics.histogram)
                                 : SumBytes(codes, first, end, values, statistics.histogram);
      // Σ (c − z)·s and Σ (c − z)²·s², from the sums of c and c².
      const double scale = numbers.scales[row * groups + g];
      const double zero = numbers.zero_points[row * groups + g];
      const auto count = static_cast<double>(sums.count);
      const double squares = sums.squares - 2 * zero * sums.sum + count * zero * zero;
      statistics.sum += scale * (sums.sum - count * zero);
      statistics.sum_squares += scale * scale * squares;
      CountScale(numbers.scales[row * groups + g], squares != 0, smallest_precise, statistics);
      if (scheme.symmetric) continue;
      ++statistics.zero_points;
      if (zero == 0) ++statistics.low_zero_points;
      if (zero == highest) ++statistics.high_zero_points;
    }
  }
  for (unsigned byte = 0; byte < bytes.size(); ++byte) {
    statistics.histogram[byte & 15U] += bytes[byte];
    statistics.histogram[byte >> 4] += bytes[byte];
  }
  statistics.weights += rows * k;
}

Status MeasureRows(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                   StatisticsBuffers& buffers, ModuleStatistics& statistics) {
  const Scheme& scheme = linear.scheme();
  const PanelRange range{.n0 = n0, .rows = rows, .k0 = 0, .cols = linear.k()};
  buffers.codes.resize(PanelBytes(scheme.code, range));
  buffers.scales.resize(rows * linear.groups());
  buffers.zero_points.resize(rows * linear.groups());
  Status status = linear.ReadCodes(range, buffers.codes);
  if (status.ok()) status = linear.ReadScales(n0, rows, buffers.scales);
  if (status.ok()) status = linear.ReadZeroPoints(n0, rows, buffers.zero_points);
  if (!status.ok()) return status;
  CountRows(scheme, linear.stored_scale_dtype(), linear.k(), rows, buffers, statistics);
  return {};
}

}  // namespace prepack
