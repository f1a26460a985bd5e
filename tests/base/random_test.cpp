#include "prepack/base/random.h"

#include <cmath>

#include "catch.h"

namespace prepack::testing {
namespace {

// The first outputs of the published algorithm.
TEST_CASE("SplitMix64 gives the published sequence") {
  SplitMix64 zero(0);
  CHECK(zero.Next() == 0xE220A8397B1DCDAFULL);
  CHECK(zero.Next() == 0x6E789E6AA1B965F4ULL);
  CHECK(zero.Next() == 0x06C45D188009454FULL);
  CHECK(zero.Next() == 0xF88BB8A8724C81ECULL);
  STATIC_REQUIRE(SplitMix64(1234567).Next() == 6457827717110365317ULL);
}

TEST_CASE("below stays below and reaches every value") {
  SplitMix64 random(1);
  int seen[16] = {};
  for (int i = 0; i < 16'000; ++i) {
    const uint64_t value = random.Below(16);
    REQUIRE(value < 16);
    ++seen[value];
  }
  for (const int count : seen) {
    CHECK(count > 850);
    CHECK(count < 1150);
  }
  CHECK(random.Below(1) == 0);
  // The upper half of the number decides: 0xE220A839 · 100 / 2^32.
  CHECK(SplitMix64(0).Below(100) == 88);
}

TEST_CASE("uniform is from 0 to below 1, with 53 bits") {
  CHECK(SplitMix64(0).Uniform() == static_cast<double>(0xE220A8397B1DCDAFULL >> 11) * 0x1p-53);
  SplitMix64 random(2);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double value = random.Uniform();
    REQUIRE(value >= 0);
    REQUIRE(value < 1);
    sum += value;
  }
  CHECK(std::abs(sum / 100'000 - 0.5) < 0.005);
}

TEST_CASE("Gaussian has the moments of a standard normal") {
  SplitMix64 random(3);
  constexpr int kCount = 100'000;
  double sum = 0;
  double squares = 0;
  int beyond_two = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.Gaussian();
    REQUIRE(std::abs(value) <= 6);
    sum += value;
    squares += value * value;
    beyond_two += std::abs(value) > 2 ? 1 : 0;
  }
  CHECK(std::abs(sum / kCount) < 0.02);
  CHECK(std::abs(squares / kCount - 1) < 0.02);
  CHECK(std::abs(beyond_two / static_cast<double>(kCount) - 0.0455) < 0.003);
}

}  // namespace
}  // namespace prepack::testing
