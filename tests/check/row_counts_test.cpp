// What CountRows counts of many groups at once is what counting code by code gives, to the bit.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"
#include "prepack/measure/code_sums.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

constexpr uint64_t kRows = 9;

// Scales of every kind: usual ones, and those that are counted apart.
constexpr std::array<float, 12> kScales = {0.01F,    -0.02F, 0.5F,  3.0F, 0.001F,    -1e-30F,
                                           0x1p-25F, 0,      65520, 1e5F, 0x1p-130F, 1};

struct CountedShape {
  CodeType code = CodeType::kU4;
  uint32_t bits = 4;
  uint64_t group_size = 128;
  uint64_t k = 0;
  bool symmetric = true;
};

// Rows of any codes, of which some groups are empty.
StatisticsBuffers MakeNumbers(const Scheme& scheme, uint64_t k) {
  SplitMix64 random(scheme.group_size + k);
  const uint64_t groups = CeilDiv(k, scheme.group_size);
  const size_t row_bytes = PanelRowBytes(scheme.code, k);
  const uint8_t middle = scheme.code == CodeType::kU4 ? 8 : scheme.code == CodeType::kU8 ? 128 : 0;
  StatisticsBuffers numbers;
  numbers.codes.resize(kRows * row_bytes);
  for (uint64_t i = 0; i < kRows * groups; ++i) {
    numbers.scales.push_back(kScales[random.Next() % kScales.size()]);
    numbers.zero_points.push_back(
        scheme.symmetric ? middle : static_cast<uint8_t>(random.Next() % (1U << scheme.bits)));
  }
  for (uint64_t row = 0; row < kRows; ++row) {
    std::vector<bool> empty(groups);
    for (uint64_t g = 0; g < groups; ++g) empty[g] = random.Next() % 8 == 0;
    for (uint64_t i = 0; i < k; ++i) {
      const uint64_t g = i / scheme.group_size;
      auto code = static_cast<uint8_t>(random.Next() % (1U << scheme.bits));
      if (scheme.code == CodeType::kF8E4M3 && (code & 0x7FU) == 0x7F) code = 1;  // no NaN
      if (empty[g]) code = numbers.zero_points[row * groups + g];
      std::byte& byte = numbers.codes[row * row_bytes + (IsNibble(scheme.code) ? i / 2 : i)];
      byte |= static_cast<std::byte>(IsNibble(scheme.code) && i % 2 != 0 ? code << 4 : code);
    }
  }
  return numbers;
}

// Counts codes, and then groups, one by one.
class OneByOne {
 public:
  OneByOne(const Scheme& scheme, DType dtype, uint64_t k, ModuleStatistics& statistics)
      : scheme_(scheme),
        range_(RangeOf(scheme)),
        smallest_precise_(dtype == DType::kF16 ? 0x1p-17F : 0x1p-126F),
        k_(k),
        windows_(scheme, statistics.windows),
        statistics_(statistics) {}

  void CountRow(std::span<const std::byte> row, const float* scales, const uint8_t* zeros) {
    for (uint64_t first = 0; first < k_; first += scheme_.group_size) {
      const uint64_t g = first / scheme_.group_size;
      CountGroup(row, first, std::min(k_, first + scheme_.group_size), scales[g], zeros[g]);
    }
  }

 private:
  void CountGroup(std::span<const std::byte> row, uint64_t first, uint64_t end, float scale,
                  uint8_t zero_point) {
    double sum = 0;
    double squares = 0;
    PieceSums piece;
    for (uint64_t i = first; i < end; ++i) {
      const uint8_t code = PanelCode(scheme_.code, row, k_, 0, i);
      const double value = CodeValues(scheme_.code)[code];
      sum += value;
      squares += value * value;
      statistics_.histogram.Add(code);
      AddToPiece(code, value, i, piece);
      if (i + 1 != end && (i + 1) % kPieceCodes != 0) continue;
      windows_.Add(piece, scale, zero_point);
      piece = {};
    }
    const auto count = static_cast<double>(end - first);
    const double zero = zero_point;
    squares = squares - 2 * zero * sum + count * zero * zero;
    statistics_.weights += end - first;
    statistics_.sum += static_cast<double>(scale) * (sum - count * zero);
    statistics_.sum_squares += static_cast<double>(scale) * scale * squares;
    CountScale(scale, squares != 0);
    if (squares > 0 && scale != 0) AddSpread(std::abs(scale), static_cast<float>(squares / count));
    if (scheme_.symmetric) return;
    ++statistics_.zero_points;
    if (zero_point == 0) ++statistics_.low_zero_points;
    if (zero_point == (1U << scheme_.bits) - 1) ++statistics_.high_zero_points;
  }

  void AddToPiece(uint8_t code, double value, uint64_t i, PieceSums& piece) const {
    ++piece.count;
    if (range_.IsFloat()) {
      piece.negative += std::signbit(value) ? 1 : 0;
      piece.zero += value == 0 ? 1 : 0;
      if (range_.kind != CodeRange::Kind::kFloats) return;
    }
    const uint64_t number = range_.IsFloat() ? code >> 3 & 15U : code ^ range_.flip;
    const bool odd = range_.kind == CodeRange::Kind::kNibbles && i % 2 != 0;
    (odd ? piece.odd : piece.even) += number;
    piece.squares += number * number;
  }

  void CountScale(float scale, bool has_weights) {
    const float magnitude = std::abs(scale);
    ++statistics_.scales;
    statistics_.negative_scales += scale < 0 ? 1 : 0;
    statistics_.zero_scales += magnitude == 0 ? 1 : 0;
    statistics_.huge_scales += magnitude > kHugeScale ? 1 : 0;
    statistics_.scale_exponents.Add(std::bit_cast<uint32_t>(magnitude) >> 23);
    statistics_.min_scale = std::min(statistics_.min_scale, magnitude);
    statistics_.max_scale = std::max(statistics_.max_scale, magnitude);
    if (!has_weights || magnitude == 0) return;
    statistics_.imprecise_scales += magnitude < smallest_precise_ ? 1 : 0;
    statistics_.scales_outside_f16 += magnitude <= 0x1p-25F || magnitude >= 65520 ? 1 : 0;
  }

  void AddSpread(float scale, float mean_square) {
    const auto log2 = [](float value) {
      return static_cast<double>(std::bit_cast<uint32_t>(value)) * 0x1p-23 - 127;
    };
    const double x = log2(scale);
    const double y = log2(mean_square) / 2;
    SpreadSums& spread = statistics_.spread;
    ++spread.groups;
    spread.scale += x;
    spread.codes += y;
    spread.scale_squares += x * x;
    spread.codes_squares += y * y;
    spread.products += x * y;
  }

  const Scheme& scheme_;
  const CodeRange range_;
  const float smallest_precise_;
  const uint64_t k_;
  RowWindows windows_;
  ModuleStatistics& statistics_;
};

void CheckSame(const ModuleStatistics& found, const ModuleStatistics& expected) {
  CHECK(found.weights == expected.weights);
  CHECK(found.histogram.All() == expected.histogram.All());
  CHECK(found.scales == expected.scales);
  CHECK(found.negative_scales == expected.negative_scales);
  CHECK(found.zero_scales == expected.zero_scales);
  CHECK(found.imprecise_scales == expected.imprecise_scales);
  CHECK(found.huge_scales == expected.huge_scales);
  CHECK(found.scales_outside_f16 == expected.scales_outside_f16);
  CHECK(found.scale_exponents.All() == expected.scale_exponents.All());
  CHECK(found.min_scale == expected.min_scale);
  CHECK(found.max_scale == expected.max_scale);
  CHECK(found.zero_points == expected.zero_points);
  CHECK(found.low_zero_points == expected.low_zero_points);
  CHECK(found.high_zero_points == expected.high_zero_points);
  CHECK(found.sum == expected.sum);
  CHECK(found.sum_squares == expected.sum_squares);
  CHECK(found.spread.groups == expected.spread.groups);
  CHECK(found.spread.scale == expected.spread.scale);
  CHECK(found.spread.codes == expected.spread.codes);
  CHECK(found.spread.scale_squares == expected.spread.scale_squares);
  CHECK(found.spread.codes_squares == expected.spread.codes_squares);
  CHECK(found.spread.products == expected.spread.products);
  CHECK(found.windows.windows == expected.windows.windows);
  CHECK(found.windows.shifted_windows == expected.windows.shifted_windows);
  CHECK(found.windows.noisy_windows == expected.windows.noisy_windows);
  CHECK(found.windows.empty_scale_exponents.All() == expected.windows.empty_scale_exponents.All());
}

}  // namespace

TEST_CASE("groups that are counted at once are those that are counted code by code") {
  using enum CodeType;
  const std::vector<CountedShape> shapes = {
      {.group_size = 128, .k = 1280},
      {.group_size = 128, .k = 1280, .symmetric = false},
      {.group_size = 128, .k = 1313, .symmetric = false},  // an odd last group
      {.group_size = 16, .k = 16, .symmetric = false},
      {.group_size = 32, .k = 4128},
      {.group_size = 64, .k = 1000, .symmetric = false},
      {.group_size = 2048, .k = 6144, .symmetric = false},
      {.group_size = 4096, .k = 8192},                    // pieces
      {.group_size = 48, .k = 1440, .symmetric = false},  // groups that do not divide pieces
      {.group_size = 1536, .k = 4608},
      {.group_size = 999, .k = 999},
      {.bits = 3, .group_size = 64, .k = 1024, .symmetric = false},
      {.bits = 2, .group_size = 128, .k = 1024},
      {.code = kF4E2M1, .group_size = 16, .k = 4800},
      {.code = kF4E2M1, .group_size = 16, .k = 1000},
      {.code = kF4E2M1, .group_size = 32, .k = 2080},
      {.code = kF4E2M1, .group_size = 24, .k = 2400},
      {.code = kU8, .bits = 8, .group_size = 128, .k = 1300, .symmetric = false},
      {.code = kS8, .bits = 8, .group_size = 2500, .k = 2500},
      {.code = kF8E4M3, .bits = 8, .group_size = 128, .k = 1290},
  };
  for (const CountedShape& shape : shapes) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      CAPTURE(static_cast<int>(shape.code), shape.bits, shape.group_size, shape.k, shape.symmetric);
      const Scheme scheme{.code = shape.code,
                          .bits = shape.bits,
                          .granularity = Granularity::kGroup,
                          .group_size = shape.group_size,
                          .symmetric = shape.symmetric};
      const StatisticsBuffers numbers = MakeNumbers(scheme, shape.k);
      ModuleStatistics found;
      CountRows(scheme, dtype, shape.k, kRows, numbers.Rows(0, kRows, kRows), found);
      ModuleStatistics expected;
      OneByOne counter(scheme, dtype, shape.k, expected);
      const uint64_t groups = CeilDiv(shape.k, shape.group_size);
      ForPanelRows(numbers.codes, kRows, [&](uint64_t row, std::span<const std::byte> codes) {
        counter.CountRow(codes, &numbers.scales[row * groups], &numbers.zero_points[row * groups]);
      });
      CheckSame(found, expected);
    }
  }
}

TEST_CASE("scales that output channels share say nothing of the spread of codes") {
  const Scheme scheme{.code = CodeType::kU4, .bits = 4, .group_size = 32, .scale_rows = 2};
  const StatisticsBuffers numbers = MakeNumbers(scheme, 64);
  ModuleStatistics statistics;
  CountRows(scheme, DType::kBF16, 64, kRows, numbers.Rows(0, kRows, kRows), statistics);
  CHECK(statistics.scales == 2 * kRows);
  CHECK(statistics.spread.groups == 0);
  CHECK(statistics.spread.products == 0);
}

TEST_CASE("blocks that are stored twice are counted, however many others there are") {
  SplitMix64 random(3);
  std::vector<std::byte> bytes(1000 * StoredBlocks::kBytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next() % 256);
  const auto copy = [&](size_t from, size_t to) {
    std::copy_n(&bytes[from * StoredBlocks::kBytes], StoredBlocks::kBytes,
                &bytes[to * StoredBlocks::kBytes]);
  };
  copy(5, 700);
  copy(5, 800);
  copy(6, 7);
  StoredBlocks blocks;
  blocks.Add(0, bytes);
  CHECK(blocks.Repeated() == 3);
  // Blocks of few values do not count.
  for (size_t i = 0; i < 20 * StoredBlocks::kBytes; ++i) bytes[i] = static_cast<std::byte>(i % 15);
  StoredBlocks others;
  others.Add(0, bytes);
  CHECK(others.Repeated() == 1);
  CHECK(StoredBlocks().Repeated() == 0);
}

}  // namespace prepack
