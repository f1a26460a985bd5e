#include "prepack/convert/gguf/sub_scales.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "prepack/base/float_convert.h"

namespace prepack::gguf {
namespace {

// The factors are below 2^8, so that scales that fit lie no further apart than that.
constexpr int kFurthestExponents = 8;
constexpr int kMantissaBits = 40;

// A number as odd · 2^exponent.
struct Odd {
  int64_t odd = 0;
  int exponent = 0;
};

Odd OddOf(double number) {
  Odd parts;
  const double mantissa = std::frexp(number, &parts.exponent);
  parts.odd = static_cast<int64_t>(std::ldexp(mantissa, kMantissaBits));
  parts.exponent -= kMantissaBits;
  while (parts.odd != 0 && parts.odd % 2 == 0) {
    parts.odd /= 2;
    ++parts.exponent;
  }
  return parts;
}

// Numbers as multiples of the largest number that all of them are multiples of.
struct Multiples {
  double unit = 0;
  std::array<int64_t, kMostSubScales> of = {};
};

std::optional<Multiples> MultiplesOf(std::span<const double> numbers) {
  std::array<Odd, kMostSubScales> parts = {};
  std::optional<int> least;
  for (size_t i = 0; i < numbers.size(); ++i) {
    parts[i] = OddOf(numbers[i]);
    if (parts[i].odd != 0) least = std::min(least.value_or(parts[i].exponent), parts[i].exponent);
  }
  Multiples multiples;
  if (!least) return multiples;
  int64_t divisor = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (parts[i].odd == 0) continue;
    const int shift = parts[i].exponent - *least;
    if (shift > kFurthestExponents) return std::nullopt;
    multiples.of[i] = parts[i].odd * (int64_t{1} << shift);
    divisor = std::gcd(divisor, multiples.of[i]);
  }
  for (int64_t& multiple : multiples.of) multiple /= divisor;
  multiples.unit = std::ldexp(static_cast<double>(divisor), *least);
  return multiples;
}

}  // namespace

// Whatever f16 the scales are multiples of, it is a whole part of the largest such number.
std::optional<SubScales> FindSubScales(std::span<const double> scales, int least, int most) {
  const std::optional<Multiples> multiples = MultiplesOf(scales);
  if (!multiples) return std::nullopt;
  SubScales found;
  if (multiples->unit == 0) return found;
  int64_t largest = 0;
  for (const int64_t multiple : multiples->of) largest = std::max(largest, std::abs(multiple));
  const int bound = std::max(most, -least);
  for (int parts = 1; parts <= bound / largest; ++parts) {
    const double unit = multiples->unit / parts;
    const uint16_t half = F32ToF16(static_cast<float>(unit));
    if (double{F16ToF32(half)} * parts != multiples->unit) continue;
    for (const int64_t times : {int64_t{parts}, -int64_t{parts}}) {
      const bool fits = std::ranges::all_of(multiples->of, [&](int64_t multiple) {
        return times * multiple >= least && times * multiple <= most;
      });
      if (!fits) continue;
      found.super = F32ToF16(static_cast<float>(times < 0 ? -unit : unit));
      for (size_t i = 0; i < scales.size(); ++i) {
        found.factors[i] = static_cast<int>(times * multiples->of[i]);
      }
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace prepack::gguf
