#include "convert/work_list.h"

#include <set>
#include <tuple>

#include "base/random.h"
#include "catch.h"

namespace prepack {
namespace {

enum class Kind : uint8_t { kA, kB };

TEST_CASE("tasks come in order") {
  WorkList<Kind> work;
  work.Add(Kind::kA, 5, 3);
  work.Add(Kind::kB, 6, 1);
  work.Add(Kind::kB, 7, 0);  // nothing to do
  work.Add(Kind::kA, 8, 1);
  REQUIRE(work.size() == 5);
  const auto task = [&](size_t index) {
    const auto t = work.At(index);
    return std::tuple(t.kind, t.unit, t.index);
  };
  CHECK(task(0) == std::tuple(Kind::kA, size_t{5}, size_t{0}));
  CHECK(task(1) == std::tuple(Kind::kA, size_t{5}, size_t{1}));
  CHECK(task(2) == std::tuple(Kind::kA, size_t{5}, size_t{2}));
  CHECK(task(3) == std::tuple(Kind::kB, size_t{6}, size_t{0}));
  CHECK(task(4) == std::tuple(Kind::kA, size_t{8}, size_t{0}));
}

TEST_CASE("random tasks are met exactly once") {
  SplitMix64 random(11);
  for (int round = 0; round < 50; ++round) {
    WorkList<Kind> work;
    std::set<std::pair<size_t, size_t>> expected;
    const auto units = static_cast<uint32_t>(random.Below(6));
    for (uint32_t unit = 0; unit < units; ++unit) {
      const size_t tasks = random.Below(50);
      work.Add(Kind::kA, unit, tasks);
      for (size_t i = 0; i < tasks; ++i) expected.emplace(unit, i);
    }
    REQUIRE(work.size() == expected.size());
    std::set<std::pair<size_t, size_t>> met;
    for (size_t i = 0; i < work.size(); ++i) {
      const auto task = work.At(i);
      met.emplace(task.unit, task.index);
    }
    CHECK(met == expected);
  }
}

}  // namespace
}  // namespace prepack
