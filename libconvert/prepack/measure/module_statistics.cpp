// Measures codes, scales and zero points of a module in one pass, some rows at a time, so that
// memory does not depend on the number of rows.

#include "prepack/measure/module_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "prepack/base/hash.h"
#include "prepack/measure/code_sums.h"
#include "prepack/measure/code_windows.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

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

// What rounds to zero in f16, and what rounds to infinity: halves of the least and beyond the most.
constexpr float kZeroInF16 = 0x1p-25F;
constexpr float kInfiniteInF16 = 65520;

void CountScale(float scale, bool has_weights, float smallest_precise,
                ModuleStatistics& statistics) {
  const float magnitude = std::abs(scale);
  ++statistics.scales;
  if (scale < 0) ++statistics.negative_scales;
  if (magnitude == 0) ++statistics.zero_scales;
  if (magnitude > kHugeScale) ++statistics.huge_scales;
  statistics.scale_exponents.Add(std::bit_cast<uint32_t>(magnitude) >> 23);
  statistics.min_scale = std::min(statistics.min_scale, magnitude);
  statistics.max_scale = std::max(statistics.max_scale, magnitude);
  if (!has_weights || magnitude == 0) return;
  if (magnitude < smallest_precise) ++statistics.imprecise_scales;
  if (magnitude <= kZeroInF16 || magnitude >= kInfiniteInF16) ++statistics.scales_outside_f16;
}

// log2 with straight lines between powers of two: at most 0.09 too low, which is good enough to
// compare spreads and takes a tenth of the time.
double RoughLog2(float value) {
  return static_cast<double>(std::bit_cast<uint32_t>(value)) * 0x1p-23 - 127;
}

}  // namespace

void SpreadSums::Add(float group_scale, float mean_square) {
  const double x = RoughLog2(group_scale);
  const double y = RoughLog2(mean_square) / 2;
  ++groups;
  scale += x;
  codes += y;
  scale_squares += x * x;
  codes_squares += y * y;
  products += x * y;
}

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

namespace {

// The codes of one group: Σ code and Σ code², as CodeValues has the codes.
struct GroupSums {
  uint64_t count = 0;
  double sum = 0;
  double squares = 0;
};

// Sums groups piece by piece, for the windows.
class GroupReader {
 public:
  GroupReader(const Scheme& scheme, ModuleStatistics& statistics)
      : range_(RangeOf(scheme)),
        codes_(range_.kind, range_.flip),
        windows_(scheme, statistics.windows) {}

  void ReadRow(std::span<const std::byte> row, uint64_t k) { codes_.Read(row, k); }

  // Codes [first, end) of the row.
  GroupSums ReadGroup(uint64_t first, uint64_t end, float scale, uint8_t zero) {
    ValueSums values;
    PieceSums whole;
    // Pieces begin at even codes, so that these are the lower nibbles.
    for (uint64_t begin = first; begin < end;) {
      const uint64_t next = std::min(end, (begin / kPieceCodes + 1) * kPieceCodes);
      const PieceSums piece = codes_.Sum(begin, next, values);
      windows_.Add(piece, scale, zero);
      whole.Add(piece);
      begin = next;
    }
    GroupSums sums{.count = end - first, .sum = values.sum, .squares = values.squares};
    if (range_.IsFloat()) return sums;
    // The numbers are codes + flip.
    const auto sum = static_cast<double>(whole.even + whole.odd);
    const auto count = static_cast<double>(sums.count);
    const double flip = range_.flip;
    sums.sum = sum - flip * count;
    sums.squares = static_cast<double>(whole.squares) - 2 * flip * sum + flip * flip * count;
    return sums;
  }

  // Adds what was counted to `histogram`, by codes. Call this once, at the end.
  void CountInto(ByteCounts<uint64_t>& histogram) const { codes_.CountInto(histogram); }

 private:
  const CodeRange range_;
  RowCodes codes_;
  RowWindows windows_;
};

}  // namespace

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

void CountRows(const Scheme& scheme, DType stored_scale_dtype, uint64_t k, uint64_t rows,
               const RowNumbers& numbers, ModuleStatistics& statistics) {
  const uint64_t groups = CeilDiv(k, scheme.group_size);
  const float smallest_precise = SmallestPrecise(stored_scale_dtype);
  const auto highest = static_cast<uint8_t>((1U << scheme.bits) - 1);
  GroupReader reader(scheme, statistics);
  ForPanelRows(numbers.codes, rows, [&](uint64_t row, std::span<const std::byte> codes) {
    reader.ReadRow(codes, k);
    for (uint64_t g = 0; g < groups; ++g) {
      const uint64_t first = g * scheme.group_size;
      const uint64_t end = std::min(k, first + scheme.group_size);
      const float stored_scale = numbers.scales[row * groups + g];
      const uint8_t stored_zero = numbers.zero_points[row * groups + g];
      const GroupSums sums = reader.ReadGroup(first, end, stored_scale, stored_zero);
      // Σ (c − z)·s and Σ (c − z)²·s², from the sums of c and c².
      const double scale = stored_scale;
      const double zero = stored_zero;
      const auto count = static_cast<double>(sums.count);
      const double squares = sums.squares - 2 * zero * sums.sum + count * zero * zero;
      statistics.sum += scale * (sums.sum - count * zero);
      statistics.sum_squares += scale * scale * squares;
      CountScale(stored_scale, squares != 0, smallest_precise, statistics);
      if (scheme.scale_rows == 1 && squares > 0 && scale != 0) {
        statistics.spread.Add(std::abs(stored_scale), static_cast<float>(squares / count));
      }
      if (scheme.symmetric) continue;
      ++statistics.zero_points;
      if (stored_zero == 0) ++statistics.low_zero_points;
      if (stored_zero == highest) ++statistics.high_zero_points;
    }
  });
  reader.CountInto(statistics.histogram);
  statistics.weights += rows * k;
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
