#include "prepack/tune/cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <fstream>
#include <thread>
#include <vector>

#include "catch.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using Cpus = std::vector<unsigned>;

// Two cores of two threads each: CPUs 0 and 2, 1 and 3.
const std::vector<CpuPlace> kTwoCores = {{0, 0}, {1, 1}, {2, 0}, {3, 1}};

TEST_CASE("threads get cores of their own as far as there are enough") {
  CHECK(Value(ChooseCpus(kTwoCores, 0)) == Cpus{0, 1});
  CHECK(Value(ChooseCpus(kTwoCores, 1)) == Cpus{0});
  CHECK(Value(ChooseCpus(kTwoCores, 2)) == Cpus{0, 1});
  CHECK(Value(ChooseCpus(kTwoCores, 3)) == Cpus{0, 1, 2});
  CHECK(Value(ChooseCpus(kTwoCores, 4)) == Cpus{0, 1, 2, 3});
  CheckError(ChooseCpus(kTwoCores, 5).status(), ErrorKind::kUsage, "(found 5, expected at most 4)");
}

TEST_CASE("which CPUs share a core, the system says") {
  const TempFolder root;
  const std::vector<CpuPlace> unknown = AllowedCpus(root.path());
  REQUIRE_FALSE(unknown.empty());
  for (const CpuPlace& place : unknown) {
    const auto folder = root / fmt::format("sys/devices/system/cpu/cpu{}/topology", place.cpu);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "thread_siblings_list") << unknown.front().cpu << "-99\n";
  }
  // Without the files each is a core of its own, with them all are one.
  CHECK(Value(ChooseCpus(unknown, 0)).size() == unknown.size());
  CHECK(Value(ChooseCpus(AllowedCpus(root.path()), 0)) == Cpus{unknown.front().cpu});
}

TEST_CASE("a pinned thread runs on these CPUs only") {
  const std::vector<CpuPlace> allowed = AllowedCpus();
  const Cpus last = {allowed.back().cpu};
  cpu_set_t set;
  CPU_ZERO(&set);
  std::thread thread([&] {
    static_cast<void>(PinTo(last));
    sched_getaffinity(0, sizeof(set), &set);
  });
  thread.join();
  CHECK(CPU_COUNT(&set) == 1);
  CHECK(CPU_ISSET(last.front(), &set));
  CheckError(PinTo({}), ErrorKind::kSystem, "--threads: cannot choose the CPUs");
}

TEST_CASE("memory has a bandwidth") {
  const double bandwidth =
      MeasureReadBandwidth(Value(ChooseCpus(AllowedCpus(), 1)), uint64_t{1} << 22);
  CHECK(bandwidth > 1e6);
  CHECK(bandwidth < 1e13);
}

}  // namespace
}  // namespace prepack::testing
