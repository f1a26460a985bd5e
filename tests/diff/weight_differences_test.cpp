// What is judged a block at a time is what one weight after the other gives.

#include "prepack/diff/weight_differences.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"

namespace prepack {
namespace {

constexpr double kTolerance = 0x1p-8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sides {
  std::vector<float> a;
  std::vector<float> b;
};

// Equal weights, some that differ by a rounding, and some by more.
Sides MakeSides(uint64_t count, uint64_t seed) {
  SplitMix64 random(seed);
  Sides sides;
  for (uint64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random.Next() % 2001) / 1000.0F - 1.0F;
    const uint64_t kind = random.Next() % 8;
    sides.a.push_back(value);
    sides.b.push_back(kind == 0   ? value * 1.002F
                      : kind == 1 ? value - static_cast<float>(random.Next() % 97) / 64.0F
                                  : value);
  }
  return sides;
}

struct Plain {
  uint64_t unequal = 0;
  uint64_t beyond = 0;
  double largest = 0;
  double relative = 0;
  double signal = 0;
  double noise = 0;
  std::vector<std::tuple<double, uint64_t, uint64_t>> worst;  // −|a − b|, n, k
};

Plain OneByOne(const Sides& sides, uint64_t first, uint64_t k) {
  Plain plain;
  for (uint64_t i = 0; i < sides.a.size(); ++i) {
    const double a = sides.a[i];
    const double b = sides.b[i];
    plain.signal += a * a;
    const bool both_nan = std::isnan(a) && std::isnan(b);
    if (a == b || both_nan) continue;
    double distance = std::abs(a - b);
    if (std::isnan(distance)) distance = std::numeric_limits<double>::infinity();
    const double size = std::max(std::abs(a), std::abs(b));
    ++plain.unequal;
    if (!(distance <= kTolerance * size)) ++plain.beyond;
    plain.largest = std::max(plain.largest, distance);
    plain.relative = std::max(plain.relative, distance / size);
    plain.noise += distance * distance;
    plain.worst.emplace_back(-distance, (first + i) / k, (first + i) % k);
  }
  std::ranges::sort(plain.worst);
  if (plain.worst.size() > kWorstElements) plain.worst.resize(kWorstElements);
  return plain;
}

void CheckThatTheyAgree(const Sides& sides, uint64_t first, uint64_t k) {
  WeightDifferences found;
  found.Add(sides.a, sides.b, first, k, kTolerance);
  const Plain expected = OneByOne(sides, first, k);
  CHECK(found.elements == sides.a.size());
  CHECK(found.unequal == expected.unequal);
  CHECK(found.beyond == expected.beyond);
  CHECK(found.max_absolute == expected.largest);
  CHECK(found.max_relative == Approx(expected.relative).epsilon(1e-15));
  if (std::isfinite(expected.signal)) {
    CHECK(found.signal == Approx(expected.signal).epsilon(1e-12));
  }
  if (std::isfinite(expected.noise)) {
    CHECK(found.noise == Approx(expected.noise).epsilon(1e-12));
  } else {
    CHECK(found.noise == expected.noise);
  }
  std::vector<std::tuple<double, uint64_t, uint64_t>> worst;
  for (const WorstElement& element : found.worst) {
    const double distance =
        std::abs(static_cast<double>(element.a.value) - static_cast<double>(element.b.value));
    worst.emplace_back(std::isnan(distance) ? -kInfinity : -distance, element.n, element.k);
  }
  CHECK(worst == expected.worst);
}

}  // namespace

TEST_CASE("figures of weights are those of one after the other, whatever their number") {
  for (const uint64_t count : {1U, 7U, 8U, 255U, 256U, 257U, 300U, 2048U, 5003U}) {
    CAPTURE(count);
    CheckThatTheyAgree(MakeSides(count, count), 3 * 100, 100);
  }
}

TEST_CASE("weights that are equal have no differences, and zeros have no sign") {
  Sides sides = MakeSides(1000, 5);
  sides.b = sides.a;
  sides.a[3] = 0.0F;
  sides.b[3] = -0.0F;
  WeightDifferences found;
  found.Add(sides.a, sides.b, 0, 100, kTolerance);
  CHECK(found.unequal == 0);
  CHECK(found.noise == 0);
  CHECK(found.worst.empty());
  CHECK(found.Verdict() == DiffVerdict::kIdentical);
}

TEST_CASE("of what is no finite number, only the same is equal") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [a, b] : {std::pair(nan, 1.0F), std::pair(1.0F, nan), std::pair(nan, nan),
                             std::pair(kInfinity, kInfinity), std::pair(kInfinity, -kInfinity),
                             std::pair(kInfinity, 2.0F), std::pair(-kInfinity, nan)}) {
    for (const uint64_t at : {0U, 255U, 256U, 599U}) {
      CAPTURE(a, b, at);
      Sides sides = MakeSides(600, at);
      sides.a[at] = a;
      sides.b[at] = b;
      CheckThatTheyAgree(sides, 0, 200);
    }
  }
}

}  // namespace prepack
