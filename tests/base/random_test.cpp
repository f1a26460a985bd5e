#include "base/random.h"

#include <cmath>

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("the generator is SplitMix64") {
  SplitMix64 random(0);  // reference values of the published algorithm
  CHECK(random.Next() == 0xE220A8397B1DCDAFULL);
  CHECK(random.Next() == 0x6E789E6AA1B965F4ULL);
  CHECK(random.Next() == 0x06C45D188009454FULL);
}

TEST_CASE("bounded numbers reach every value") {
  SplitMix64 random(1);
  unsigned seen = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random.Below(16);
    REQUIRE(value < 16);
    seen |= 1U << value;
  }
  CHECK(seen == 0xFFFF);
}

TEST_CASE("Gaussian numbers have mean 0 and variance 1") {
  SplitMix64 random(2);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.Gaussian();
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  CHECK(std::abs(sum / kCount) < 0.01);
  CHECK(std::abs(squares / kCount - 1) < 0.02);
  CHECK(std::abs(fourth / kCount - 2.9) < 0.1);  // 3 for a Gaussian, 2.9 for the sum of twelve
}

}  // namespace
}  // namespace prepack
