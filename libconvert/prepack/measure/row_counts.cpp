// Measures codes, scales and zero points of a module in one pass, some rows at a time, so that
// memory does not depend on the number of rows. A group has few codes in some formats: what it
// costs is done for all groups of a row at once.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "prepack/kernels/kernels.h"
#include "prepack/measure/code_sums.h"
#include "prepack/measure/code_windows.h"
#include "prepack/measure/module_statistics.h"
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

// Floats that are not negative compare like their bits, which compilers make vectors of.
int32_t BitsOf(float value) {
  return std::bit_cast<int32_t>(value);
}

int32_t MagnitudeBits(float value) {
  return BitsOf(value) & std::numeric_limits<int32_t>::max();
}

// Counts all scales of some rows, whatever they multiply. Returns whether any but zero is too small
// or too large for some dtype.
bool CountScales(std::span<const float> scales, float smallest_precise,
                 ModuleStatistics& statistics) {
  const int32_t low = std::max(BitsOf(smallest_precise), BitsOf(kZeroInF16) + 1);
  const int32_t high = BitsOf(kInfiniteInF16);
  const int32_t huge = BitsOf(kHugeScale);
  struct {
    int32_t negative = 0;
    int32_t zero = 0;
    int32_t huge = 0;
    int32_t extreme = 0;
  } counts;
  int32_t least = MagnitudeBits(statistics.min_scale);
  int32_t most = MagnitudeBits(statistics.max_scale);
  for (const float scale : scales) {
    const int32_t bits = MagnitudeBits(scale);
    const int32_t zero = bits == 0 ? 1 : 0;
    counts.negative += (BitsOf(scale) < 0 ? 1 : 0) & ~zero;
    counts.zero += zero;
    counts.huge += bits > huge ? 1 : 0;
    counts.extreme += ((bits < low ? 1 : 0) & ~zero) + (bits >= high ? 1 : 0);
    least = bits < least ? bits : least;
    most = bits > most ? bits : most;
  }
  statistics.scales += scales.size();
  statistics.negative_scales += static_cast<uint32_t>(counts.negative);
  statistics.zero_scales += static_cast<uint32_t>(counts.zero);
  statistics.huge_scales += static_cast<uint32_t>(counts.huge);
  statistics.min_scale = std::bit_cast<float>(least);
  statistics.max_scale = std::bit_cast<float>(most);
  return counts.extreme != 0;
}

void CountExponents(std::span<const float> scales, ByteCounts<uint64_t>& exponents) {
  // In turns, so that equal neighbours do not wait for each other.
  constexpr size_t kTurns = 4;
  std::array<uint32_t, kTurns * ByteCounts<uint64_t>::kValues> turns{};
  uint32_t* const counts = turns.data();
  for (size_t i = 0; i < scales.size(); ++i) {
    ++counts[kTurns * static_cast<uint32_t>(MagnitudeBits(scales[i]) >> 23) + i % kTurns];
  }
  for (size_t exponent = 0; exponent < turns.size() / kTurns; ++exponent) {
    uint64_t count = 0;
    for (size_t i = 0; i < kTurns; ++i) count += counts[exponent * kTurns + i];
    if (count != 0) exponents.Add(exponent, count);
  }
}

// Counts rows one after the other.
class RowCounter {
 public:
  RowCounter(const Scheme& scheme, float smallest_precise, uint64_t k, ModuleStatistics& statistics)
      : scheme_(scheme),
        smallest_precise_(smallest_precise),
        k_(k),
        range_(RangeOf(scheme)),
        at_once_(RowCodes::HasGroups(range_.kind, scheme.group_size) ? k / scheme.group_size : 0),
        codes_(range_.kind, range_.flip),
        windows_(scheme, statistics.windows),
        statistics_(statistics) {
    const uint64_t groups = CeilDiv(k, scheme.group_size);
    for (std::vector<double>* numbers :
         {&sums_, &squares_, &weight_squares_, &scale_logs_, &code_logs_}) {
      numbers->resize(groups);
    }
  }

  // `has_extremes`: any of the scales may be no good for the weights of its group.
  void Count(std::span<const std::byte> codes, const float* scales, const uint8_t* zeros,
             bool has_extremes) {
    SumGroups(codes, scales, zeros);
    const uint64_t whole = k_ / scheme_.group_size;
    const size_t with_weights =
        Weigh(0, whole, scales, zeros) + Weigh(whole, sums_.size(), scales, zeros);
    AddWeights(with_weights);
    if (has_extremes) CountExtremes(scales);
  }

  // Adds what was counted to `histogram`, by codes. Call this once, at the end.
  void CountInto(ByteCounts<uint64_t>& histogram) const { codes_.CountInto(histogram); }

 private:
  uint64_t SizeOf(uint64_t group) const {
    return std::min(scheme_.group_size, k_ - group * scheme_.group_size);
  }

  // Of each group: Σ code and Σ code², as CodeValues has the codes.
  void SumGroups(std::span<const std::byte> codes, const float* scales, const uint8_t* zeros) {
    codes_.Read(codes, k_);
    if (at_once_ != 0) {
      const NibbleGroups groups =
          codes_.SumGroups(scheme_.group_size, std::span(sums_).first(at_once_),
                           std::span(squares_).first(at_once_));
      windows_.AddGroups(groups, scales, zeros);
    }
    for (uint64_t g = at_once_; g < sums_.size(); ++g) SumGroup(g, scales[g], zeros[g]);
  }

  // Piece by piece, for the windows.
  void SumGroup(uint64_t group, float scale, uint8_t zero) {
    const uint64_t first = group * scheme_.group_size;
    const uint64_t end = first + SizeOf(group);
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
    sums_[group] = values.sum;
    squares_[group] = values.squares;
    if (range_.IsFloat()) return;
    // The numbers are codes + flip.
    const auto sum = static_cast<double>(whole.even + whole.odd);
    const auto count = static_cast<double>(end - first);
    const double flip = range_.flip;
    sums_[group] = sum - flip * count;
    squares_[group] = static_cast<double>(whole.squares) - 2 * flip * sum + flip * flip * count;
  }

  // Makes weights of groups [first, end), which are of one size. Returns how many have any.
  size_t Weigh(uint64_t first, uint64_t end, const float* scales, const uint8_t* zeros) {
    if (first == end) return 0;
    return Kernels().weigh_groups({.scales = scales + first,
                                   .zero_points = zeros + first,
                                   .codes = static_cast<double>(SizeOf(first))},
                                  end - first,
                                  {.sums = &sums_[first],
                                   .squares = &squares_[first],
                                   .weight_squares = &weight_squares_[first],
                                   .scale_logs = &scale_logs_[first],
                                   .code_logs = &code_logs_[first]});
  }

  // In the order of the groups, whatever the CPU can do at once: sums of doubles depend on it.
  void AddWeights(size_t groups_with_weights) {
    double sum = statistics_.sum;
    double squares = statistics_.sum_squares;
    SpreadSums spread = statistics_.spread;
    const double* const weight_sums = sums_.data();
    const double* const weight_squares = weight_squares_.data();
    const double* const scale_logs = scale_logs_.data();
    const double* const code_logs = code_logs_.data();
    for (size_t g = 0; g < sums_.size(); ++g) {
      sum += weight_sums[g];
      squares += weight_squares[g];
      const double x = scale_logs[g];
      const double y = code_logs[g];
      spread.scale += x;
      spread.codes += y;
      spread.scale_squares += x * x;
      spread.codes_squares += y * y;
      spread.products += x * y;
    }
    statistics_.sum = sum;
    statistics_.sum_squares = squares;
    if (scheme_.scale_rows != 1) return;
    spread.groups += groups_with_weights;
    statistics_.spread = spread;
  }

  // Scales that are no good for the weights of their groups.
  void CountExtremes(const float* scales) {
    for (size_t g = 0; g < sums_.size(); ++g) {
      const float magnitude = std::abs(scales[g]);
      if (squares_[g] == 0 || magnitude == 0) continue;
      if (magnitude < smallest_precise_) ++statistics_.imprecise_scales;
      if (magnitude <= kZeroInF16 || magnitude >= kInfiniteInF16) ++statistics_.scales_outside_f16;
    }
  }

  const Scheme& scheme_;
  const float smallest_precise_;
  const uint64_t k_;
  const CodeRange range_;
  const uint64_t at_once_;  // groups whose codes are summed up at once, from the first on
  RowCodes codes_;
  RowWindows windows_;
  ModuleStatistics& statistics_;
  // Of the groups of a row: see kernels/group_weights.h.
  std::vector<double> sums_;
  std::vector<double> squares_;
  std::vector<double> weight_squares_;
  std::vector<double> scale_logs_;
  std::vector<double> code_logs_;
};

}  // namespace

void CountRows(const Scheme& scheme, DType stored_scale_dtype, uint64_t k, uint64_t rows,
               const RowNumbers& numbers, ModuleStatistics& statistics) {
  const uint64_t groups = CeilDiv(k, scheme.group_size);
  const float smallest_precise = SmallestPrecise(stored_scale_dtype);
  const bool has_extremes = CountScales(numbers.scales, smallest_precise, statistics);
  CountExponents(numbers.scales, statistics.scale_exponents);
  RowCounter counter(scheme, smallest_precise, k, statistics);
  ForPanelRows(numbers.codes, rows, [&](uint64_t row, std::span<const std::byte> codes) {
    counter.Count(codes, numbers.scales.data() + row * groups,
                  numbers.zero_points.data() + row * groups, has_extremes);
  });
  counter.CountInto(statistics.histogram);
  statistics.weights += rows * k;
  if (scheme.symmetric) return;
  const auto highest = static_cast<uint8_t>((1U << scheme.bits) - 1);
  const auto count = [&](uint8_t zero_point) {
    return static_cast<uint64_t>(std::ranges::count(numbers.zero_points, zero_point));
  };
  statistics.zero_points += numbers.zero_points.size();
  statistics.low_zero_points += count(0);
  statistics.high_zero_points += count(highest);
}

}  // namespace prepack
