#include "prepack/tune/choose.h"

#include <limits>
#include <optional>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"

namespace prepack::testing {
namespace {

using Kinds = std::vector<std::vector<TuneOption>>;
using Places = std::vector<size_t>;

TEST_CASE("without a budget every kind gets its cheapest option") {
  const Kinds kinds = {{{.cost = 3, .noise = 1}, {.cost = 2, .noise = 9}},
                       {{.cost = 5, .noise = 1}, {.cost = 7, .noise = 0}}};
  CHECK(ChooseOptions(kinds, std::nullopt) == Places{1, 0});
}

TEST_CASE("the budget is spent where it saves most") {
  // Fast but noisy options of two kinds: only one fits, and the second saves more.
  const Kinds kinds = {{{.cost = 10, .noise = 1}, {.cost = 8, .noise = 4}},
                       {{.cost = 10, .noise = 1}, {.cost = 5, .noise = 4}}};
  CHECK(ChooseOptions(kinds, 5.0) == Places{0, 1});
  CHECK(ChooseOptions(kinds, 8.0) == Places{1, 1});
  CHECK(ChooseOptions(kinds, 2.0) == Places{0, 0});
  CHECK_FALSE(ChooseOptions(kinds, 1.9).has_value());
}

TEST_CASE("equal costs are decided by noise, then by the tie") {
  const Kinds kinds = {{{.cost = 1, .noise = 3, .tie = 0}, {.cost = 1, .noise = 2, .tie = 9}},
                       {{.cost = 1, .noise = 1, .tie = 5}, {.cost = 1, .noise = 1, .tie = 4}}};
  CHECK(ChooseOptions(kinds, std::nullopt) == Places{1, 1});
}

TEST_CASE("a kind without options has no choice, and no kinds have an empty one") {
  CHECK_FALSE(ChooseOptions(Kinds{{{.cost = 1}}, {}}, std::nullopt).has_value());
  CHECK(ChooseOptions({}, std::nullopt) == Places{});
}

// All choices, one after another.
std::optional<double> CheapestOf(const Kinds& kinds, double most) {
  std::optional<double> best;
  size_t all = 1;
  for (const auto& options : kinds) all *= options.size();
  for (size_t number = 0; number < all; ++number) {
    size_t rest = number;
    TuneOption sum;
    for (const auto& options : kinds) {
      sum.cost += options[rest % options.size()].cost;
      sum.noise += options[rest % options.size()].noise;
      rest /= options.size();
    }
    if (sum.noise <= most && (!best || sum.cost < *best)) best = sum.cost;
  }
  return best;
}

TEST_CASE("no choice of all is better") {
  SplitMix64 random(31);
  for (int trial = 0; trial < 200; ++trial) {
    Kinds kinds(1 + random.Below(6));
    for (auto& options : kinds) {
      options.resize(1 + random.Below(4));
      // Whole numbers: sums are exact in any order.
      for (TuneOption& option : options) {
        option.cost = static_cast<double>(random.Below(20));
        option.noise = static_cast<double>(random.Below(20));
      }
    }
    const auto most = static_cast<double>(random.Below(60));
    const auto chosen = ChooseOptions(kinds, most);
    const std::optional<double> expected = CheapestOf(kinds, most);
    REQUIRE(chosen.has_value() == expected.has_value());
    if (!chosen) continue;
    double cost = 0;
    double noise = 0;
    for (size_t i = 0; i < kinds.size(); ++i) {
      cost += kinds[i][(*chosen)[i]].cost;
      noise += kinds[i][(*chosen)[i]].noise;
    }
    CHECK(cost == *expected);
    CHECK(noise <= most);
  }
}

TEST_CASE("forty kinds whose costs all differ are chosen from at once") {
  Kinds kinds;
  double least = 0;
  SplitMix64 random(5);
  for (int kind = 0; kind < 40; ++kind) {
    const double saved = 1 + random.Uniform();
    kinds.push_back({{.cost = 10, .noise = 1}, {.cost = 10 - saved, .noise = 1 + saved}});
    least += 1;
  }
  const auto chosen = ChooseOptions(kinds, least + 20);
  REQUIRE(chosen.has_value());
  double cost = 0;
  double noise = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    cost += kinds[i][(*chosen)[i]].cost;
    noise += kinds[i][(*chosen)[i]].noise;
  }
  CHECK(noise <= least + 20);
  // Each unit of noise saves one of cost, so all but the last bit of the budget is spent.
  CHECK(cost < 400 - 19.9);
}

TEST_CASE("decibels and noise are inverse") {
  CHECK(NoiseOfDecibel(0) == 1);
  CHECK(NoiseOfDecibel(20) == Approx(0.01));
  CHECK(DecibelOfNoise(NoiseOfDecibel(41.5)) == Approx(41.5));
  const double exact = std::numeric_limits<double>::infinity();
  CHECK(NoiseOfDecibel(exact) == 0);
  CHECK(DecibelOfNoise(0) == exact);
}

}  // namespace
}  // namespace prepack::testing
