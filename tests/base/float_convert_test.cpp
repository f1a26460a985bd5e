#include "prepack/base/float_convert.h"

#include <cmath>
#include <limits>

#include "catch.h"

namespace prepack::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// A 16-bit float from its definition, in f64: an oracle that shares nothing with the bit tricks.
double FromDefinition(uint32_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<double>(bits & ((1U << mantissa_bits) - 1));
  const auto exponent = static_cast<int>((bits >> mantissa_bits) & ((1U << exponent_bits) - 1));
  const double one = std::ldexp(1.0, mantissa_bits);
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                               : std::ldexp(one + mantissa, exponent - bias - mantissa_bits);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

struct Format {
  int exponent_bits;
  uint16_t infinity;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

const Format kBF16{8, 0x7F80, BF16ToF32, F32ToBF16};
const Format kF16{5, 0x7C00, F16ToF32, F32ToF16};

// All checks below walk over all 65536 patterns and count, so that a failure is one line.

TEST_CASE("widening gives the value that the definition says, for every pattern") {
  const Format& format = GENERATE(kBF16, kF16);
  CAPTURE(format.exponent_bits);
  int wrong = 0;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const float value = format.widen(static_cast<uint16_t>(bits));
    const bool negative = (bits & 0x8000U) != 0;
    const uint32_t magnitude = bits & 0x7FFFU;
    if (std::signbit(value) != negative) ++wrong;
    if (magnitude > format.infinity) {
      wrong += std::isnan(value) ? 0 : 1;
    } else if (magnitude == format.infinity) {
      wrong += value == (negative ? -kInf : kInf) ? 0 : 1;
    } else {
      wrong += static_cast<double>(value) == FromDefinition(bits, format.exponent_bits) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("narrowing undoes widening, for every pattern") {
  const Format& format = GENERATE(kBF16, kF16);
  CAPTURE(format.exponent_bits);
  int wrong = 0;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const uint16_t back = format.narrow(format.widen(static_cast<uint16_t>(bits)));
    if ((bits & 0x7FFFU) > format.infinity) {
      wrong += (back & 0x7FFFU) > format.infinity && (back & 0x8000U) == (bits & 0x8000U) ? 0 : 1;
    } else {
      wrong += back == bits ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

// Between two neighbours: the midpoint goes to the even one, everything else to the nearer. Covers
// subnormals, the step to normal numbers, changes of the exponent and overflow (the neighbour of
// the largest number is infinity).
TEST_CASE("narrowing rounds to nearest, ties to even, between every two neighbours") {
  const Format& format = GENERATE(kBF16, kF16);
  CAPTURE(format.exponent_bits);
  int wrong = 0;
  for (uint16_t low = 0; low < format.infinity; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    // From the definition, because the neighbour of the largest number is infinity when widened.
    const double middle =
        (FromDefinition(low, format.exponent_bits) + FromDefinition(high, format.exponent_bits)) /
        2;
    const auto tie = static_cast<float>(middle);  // one bit more than the format: exact
    const float below = std::nextafter(tie, -kInf);
    const float above = std::nextafter(tie, kInf);
    const uint16_t even = low % 2 == 0 ? low : high;
    for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
      const float s = sign == 0 ? 1.0F : -1.0F;
      wrong += format.narrow(s * tie) == (sign | even) ? 0 : 1;
      wrong += format.narrow(s * below) == (sign | low) ? 0 : 1;
      wrong += format.narrow(s * above) == (sign | high) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("bf16 at the edges") {
  STATIC_REQUIRE(F32ToBF16(1.0F) == 0x3F80);
  STATIC_REQUIRE(F32ToBF16(-0.0F) == 0x8000);
  STATIC_REQUIRE(F32ToBF16(0x1.01p0F) == 0x3F80);        // tie, down to even
  STATIC_REQUIRE(F32ToBF16(0x1.03p0F) == 0x3F82);        // tie, up to even
  STATIC_REQUIRE(F32ToBF16(0x1.010002p0F) == 0x3F81);    // just above a tie
  STATIC_REQUIRE(F32ToBF16(0x1.FEp127F) == 0x7F7F);      // the largest
  STATIC_REQUIRE(F32ToBF16(0x1.FEFFFEp127F) == 0x7F7F);  // just below halfway to the next
  STATIC_REQUIRE(F32ToBF16(0x1.FFp127F) == 0x7F80);      // halfway: infinity
  STATIC_REQUIRE(F32ToBF16(-std::numeric_limits<float>::max()) == 0xFF80);
  STATIC_REQUIRE(F32ToBF16(0x1p-133F) == 0x0001);  // the smallest subnormal is kept
  STATIC_REQUIRE(F32ToBF16(0x1p-134F) == 0x0000);  // tie with zero
  STATIC_REQUIRE(F32ToBF16(0x1.8p-134F) == 0x0001);
  STATIC_REQUIRE(F32ToBF16(-0x1p-149F) == 0x8000);
}

TEST_CASE("f16 at the edges") {
  STATIC_REQUIRE(F32ToF16(1.0F) == 0x3C00);
  STATIC_REQUIRE(F32ToF16(-0.0F) == 0x8000);
  STATIC_REQUIRE(F32ToF16(0x1.002p0F) == 0x3C00);  // tie, down to even
  STATIC_REQUIRE(F32ToF16(0x1.006p0F) == 0x3C02);  // tie, up to even
  STATIC_REQUIRE(F32ToF16(65504.0F) == 0x7BFF);    // the largest
  STATIC_REQUIRE(F32ToF16(65519.996F) == 0x7BFF);  // just below halfway to the next
  STATIC_REQUIRE(F32ToF16(65520.0F) == 0x7C00);    // halfway: infinity
  STATIC_REQUIRE(F32ToF16(-1e30F) == 0xFC00);
  STATIC_REQUIRE(F32ToF16(0x1p-14F) == 0x0400);         // the smallest normal
  STATIC_REQUIRE(F32ToF16(0x1.FFFFFEp-15F) == 0x0400);  // rounds up into it
  STATIC_REQUIRE(F32ToF16(0x1p-24F) == 0x0001);         // the smallest subnormal
  STATIC_REQUIRE(F32ToF16(0x1p-25F) == 0x0000);         // tie with zero
  STATIC_REQUIRE(F32ToF16(0x1.000002p-25F) == 0x0001);
  STATIC_REQUIRE(F32ToF16(-0x1p-149F) == 0x8000);
}

// A NaN whose payload lies in the bits that are cut off must not become infinity.
TEST_CASE("a NaN stays a NaN, with its sign") {
  for (const uint32_t payload : {1U, 0x1FFFU, 0x2000U, 0xFFFFU, 0x10000U, 0x400000U, 0x7FFFFFU}) {
    for (const uint32_t sign : {0U, 0x80000000U}) {
      const auto nan = std::bit_cast<float>(sign | 0x7F800000U | payload);
      CAPTURE(payload, sign);
      CHECK(std::isnan(BF16ToF32(F32ToBF16(nan))));
      CHECK(std::isnan(F16ToF32(F32ToF16(nan))));
      CHECK((F32ToBF16(nan) >> 15) == sign >> 31);
      CHECK((F32ToF16(nan) >> 15) == sign >> 31);
    }
  }
}

TEST_CASE("FP8 E4M3 widens exactly") {
  CHECK(F8E4M3ToF32(0x00) == 0.0F);
  CHECK(std::signbit(F8E4M3ToF32(0x80)));
  CHECK(F8E4M3ToF32(0x01) == 0.001953125F);  // the smallest subnormal
  CHECK(F8E4M3ToF32(0x07) == 7 * 0.001953125F);
  CHECK(F8E4M3ToF32(0x08) == 0.015625F);  // the smallest normal
  CHECK(F8E4M3ToF32(0x38) == 1.0F);
  CHECK(F8E4M3ToF32(0xC8) == -4.0F);
  CHECK(F8E4M3ToF32(0x4C) == 6.0F);
  CHECK(F8E4M3ToF32(0x7E) == 448.0F);
  CHECK(F8E4M3ToF32(0xFE) == -448.0F);
  CHECK(std::isnan(F8E4M3ToF32(0x7F)));
  CHECK(std::isnan(F8E4M3ToF32(0xFF)));
  // Neighbours grow, so no code is decoded out of order.
  for (unsigned bits = 1; bits < 0x7F; ++bits) {
    CHECK(F8E4M3ToF32(static_cast<uint8_t>(bits)) > F8E4M3ToF32(static_cast<uint8_t>(bits - 1)));
  }
}

TEST_CASE("exponents of scales widen exactly, and powers of two come back") {
  for (int bits = 0; bits < 255; ++bits) {
    const float scale = F8E8M0ToF32(static_cast<uint8_t>(bits));
    CHECK(scale == std::ldexp(1.0F, bits - 127));
    CHECK(F32ToF8E8M0(scale) == bits);
    CHECK(RoundTo(DType::kF8E8M0, scale) == scale);
  }
  CHECK(std::isnan(F8E8M0ToF32(255)));
  CHECK(F8E8M0ToF32(0) == 0x1p-127F);
  // What is no power of two becomes the one below.
  CHECK(RoundTo(DType::kF8E8M0, 1.75F) == 1.0F);
  CHECK(RoundTo(DType::kF8E8M0, -3.0F) == 2.0F);
  CHECK(RoundTo(DType::kF8E8M0, 0.0F) == 0x1p-127F);
}

}  // namespace
}  // namespace prepack::testing
