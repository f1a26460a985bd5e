#include "prepack/convert/gguf/integers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace prepack::gguf {
namespace {

using enum GgmlType;

constexpr std::array<IntegerRange, 10> kRanges = {{
    {.type = kQ4_0, .low = -8, .high = 7},
    {.type = kQ4_1, .low = 0, .high = 15, .has_minima = true},
    {.type = kQ5_0, .low = -16, .high = 15},
    {.type = kQ5_1, .low = 0, .high = 31, .has_minima = true},
    {.type = kQ8_0, .low = -128, .high = 127},
    {kQ2_K, 0, 3, /*has_minima=*/true, /*group=*/16, 0, 15},
    {kQ3_K, -4, 3, /*has_minima=*/false, /*group=*/16, -32, 31},
    {kQ4_K, 0, 15, /*has_minima=*/true, /*group=*/32, 0, 63},
    {kQ5_K, 0, 31, /*has_minima=*/true, /*group=*/32, 0, 63},
    {kQ6_K, -32, 31, /*has_minima=*/false, /*group=*/16, -128, 127},
}};

// The integers that codes of the scheme mean, without their zero points over a minimum.
std::pair<int, int> IntegersOf(const Scheme& scheme, bool over_minimum) {
  const int codes = 1 << scheme.bits;
  if (scheme.code == CodeType::kS8) return {-codes / 2, codes / 2 - 1};
  if (over_minimum) return {0, codes - 1};
  if (scheme.symmetric) return {-codes / 2, codes / 2 - 1};
  return {1 - codes, codes - 1};
}

}  // namespace

const IntegerRange* RangeOf(GgmlType type) {
  const auto* it = std::ranges::find(kRanges, type, &IntegerRange::type);
  return it == kRanges.end() ? nullptr : it;
}

std::string WhyNotIn(const IntegerRange& range, const Scheme& scheme) {
  const std::string_view name = InfoOf(range.type).name;
  if (IsFloatCode(scheme.code) || scheme.code == CodeType::kBF16) {
    return fmt::format("{} holds integers", name);
  }
  if (range.has_minima && scheme.code == CodeType::kS8) {
    return fmt::format("{} has a minimum, which signed codes lack", name);
  }
  const auto [low, high] = IntegersOf(scheme, range.has_minima);
  if (low >= range.low && high <= range.high) return "";
  return fmt::format("the weights are integers from {} to {}, and {} holds {} to {}", low, high,
                     name, range.low, range.high);
}

void TakeIntegers(CodeType type, const uint8_t* codes, uint64_t first, int zero_point,
                  std::span<int> integers) {
  for (size_t i = 0; i < integers.size(); ++i) {
    const uint64_t place = first + i;
    int code = 0;
    if (IsNibble(type)) {
      code = codes[place / 2] >> (4 * (place % 2)) & 15;
    } else {
      code = type == CodeType::kS8 ? static_cast<int8_t>(codes[place]) : codes[place];
    }
    integers[i] = code - zero_point;
  }
}

}  // namespace prepack::gguf
