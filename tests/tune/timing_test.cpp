#include "prepack/tune/timing.h"

#include <numeric>
#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("the median counts, not the mean") {
  CHECK(Summarize({3, 1, 100}) == Timing{.seconds = 3, .low = 1, .high = 100, .samples = 3});
  CHECK(Summarize({4, 1, 2, 9}).seconds == 3);
  CHECK(Summarize({7}) == Timing{.seconds = 7, .low = 7, .high = 7, .samples = 1});
}

TEST_CASE("of many samples the interval leaves the outer ones out") {
  // Ranks 20.2 - 1 and 80 of 100 hold the median with 95 %: 50 -/+ 1.96 · 10 / 2.
  std::vector<double> samples(100);
  std::iota(samples.begin(), samples.end(), 1.0);
  const Timing timing = Summarize(samples);
  CHECK(timing.seconds == 50.5);
  CHECK(timing.low == 41);
  CHECK(timing.high == 60);
  CHECK(timing.samples == 100);
}

TEST_CASE("times of products that follow each other add up") {
  const Timing a{.seconds = 2, .low = 1, .high = 4, .samples = 9};
  const Timing b{.seconds = 3, .low = 2, .high = 5, .samples = 7};
  CHECK(a + b == Timing{.seconds = 5, .low = 3, .high = 9, .samples = 7});
  CHECK(a * 3 == Timing{.seconds = 6, .low = 3, .high = 12, .samples = 9});
}

TEST_CASE("a ranking is certain when intervals are apart, or so narrow that it does not matter") {
  const Timing fast{.seconds = 1, .low = 0.9, .high = 1.1, .samples = 9};
  const Timing slow{.seconds = 2, .low = 1.8, .high = 2.2, .samples = 9};
  const Timing wide{.seconds = 1.5, .low = 1.05, .high = 2.5, .samples = 9};
  CHECK(IsDecided(fast, slow));
  CHECK(IsDecided(slow, fast));
  CHECK_FALSE(IsDecided(fast, wide));
  const Timing narrow{.seconds = 1, .low = 0.999, .high = 1.001, .samples = 9};
  const Timing alike{.seconds = 1.001, .low = 1.0, .high = 1.002, .samples = 9};
  CHECK(IsDecided(narrow, alike));
  CHECK(IsRankingCertain(std::vector{fast, slow}));
  CHECK_FALSE(IsRankingCertain(std::vector{fast, slow, wide}));
  CHECK(IsRankingCertain({}));
}

}  // namespace
}  // namespace prepack::testing
