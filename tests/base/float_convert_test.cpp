#include "base/float_convert.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "catch.h"

namespace prepack {
namespace {

// The value of a 16-bit float from its definition, in f64.
double Define(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  const double significand = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - mantissa_bits);
}

template <typename Widen, typename Narrow>
void CheckAll(int exponent_bits, int mantissa_bits, Widen widen, Narrow narrow) {
  for (unsigned i = 0; i <= 0xFFFF; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const double expected = Define(bits, exponent_bits, mantissa_bits);
    const float value = widen(bits);
    if (std::isnan(expected)) {
      REQUIRE(std::isnan(value));
      REQUIRE(std::isnan(widen(narrow(value))));
      continue;
    }
    REQUIRE(static_cast<double>(value) == expected);
    REQUIRE(narrow(value) == bits);  // widening is exact, so narrowing gives the bits back
    const auto next = static_cast<uint16_t>(bits + 1);
    const double above = Define(next, exponent_bits, mantissa_bits);
    if (!std::isfinite(expected) || !std::isfinite(above)) continue;
    // Halfway between two neighbours the even one wins; a little off it the nearer one.
    const auto half = static_cast<float>((expected + above) / 2);
    const uint16_t even = (bits & 1U) == 0 ? bits : next;
    REQUIRE(narrow(half) == even);
    REQUIRE(narrow(std::nextafter(half, static_cast<float>(expected))) == bits);
    REQUIRE(narrow(std::nextafter(half, static_cast<float>(above))) == next);
  }
}

TEST_CASE("every bf16 number widens to its value and narrows back") {
  CheckAll(8, 7, BF16ToF32, F32ToBF16);
  CHECK(F32ToBF16(std::numeric_limits<float>::max()) == 0x7F80);
  CHECK(F32ToBF16(-0.0F) == 0x8000);
}

TEST_CASE("every f16 number widens to its value and narrows back") {
  CheckAll(5, 10, F16ToF32, F32ToF16);
  CHECK(F32ToF16(65519.99F) == 0x7BFF);  // the largest f16
  CHECK(F32ToF16(65520.0F) == 0x7C00);   // halfway to the next: infinity
  CHECK(F32ToF16(-1e30F) == 0xFC00);
  CHECK(F32ToF16(0x1p-25F) == 0x0000);  // half the smallest subnormal, ties to even
  CHECK(F32ToF16(0x1.000002p-25F) == 0x0001);
  CHECK(F32ToF16(-0x1p-40F) == 0x8000);
}

}  // namespace
}  // namespace prepack
