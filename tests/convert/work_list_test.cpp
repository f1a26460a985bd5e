#include "convert/work_list.h"

#include <set>
#include <tuple>

#include "base/random.h"
#include "catch.h"

namespace prepack {
namespace {

enum class Kind : uint8_t { kA, kB };

TEST_CASE("tasks come in order, and the last one of a range may be short") {
  WorkList<Kind> work;
  work.Add(Kind::kA, 5, 10, 4);
  work.Add(Kind::kB, 6, 4, 4);
  work.Add(Kind::kB, 7, 0, 4);  // nothing to do
  work.Add(Kind::kA, 8, 1, 100);
  REQUIRE(work.size() == 5);
  const auto task = [&](size_t index) {
    const auto t = work.At(index);
    return std::tuple(t.kind, t.unit, t.begin, t.end);
  };
  CHECK(task(0) == std::tuple(Kind::kA, size_t{5}, uint64_t{0}, uint64_t{4}));
  CHECK(task(1) == std::tuple(Kind::kA, size_t{5}, uint64_t{4}, uint64_t{8}));
  CHECK(task(2) == std::tuple(Kind::kA, size_t{5}, uint64_t{8}, uint64_t{10}));
  CHECK(task(3) == std::tuple(Kind::kB, size_t{6}, uint64_t{0}, uint64_t{4}));
  CHECK(task(4) == std::tuple(Kind::kA, size_t{8}, uint64_t{0}, uint64_t{1}));
}

TEST_CASE("random ranges are covered exactly once") {
  SplitMix64 random(11);
  for (int round = 0; round < 50; ++round) {
    WorkList<Kind> work;
    std::set<std::pair<size_t, uint64_t>> expected;
    const size_t units = random.Below(6);
    for (size_t unit = 0; unit < units; ++unit) {
      const uint64_t total = random.Below(50);
      work.Add(Kind::kA, unit, total, 1 + random.Below(9));
      for (uint64_t i = 0; i < total; ++i) expected.emplace(unit, i);
    }
    std::set<std::pair<size_t, uint64_t>> covered;
    for (size_t i = 0; i < work.size(); ++i) {
      const auto task = work.At(i);
      REQUIRE(task.begin < task.end);
      for (uint64_t at = task.begin; at < task.end; ++at) {
        REQUIRE(covered.emplace(task.unit, at).second);
      }
    }
    CHECK(covered == expected);
  }
}

}  // namespace
}  // namespace prepack
