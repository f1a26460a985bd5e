#include "prepack/base/parallel.h"

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

Status FailAt(size_t index) {
  return Malformed("task " + std::to_string(index), "failed");
}

TEST_CASE("ThreadCount takes the wish, or the CPUs that may be used") {
  CHECK(ThreadCount(1) == 1);
  CHECK(ThreadCount(17) == 17);
  CHECK(ThreadCount(0) >= 1);
}

TEST_CASE("every index is handed out exactly once, to a worker in range") {
  const size_t count = GENERATE(0U, 1U, 2U, 7U, 1000U);
  const unsigned threads = GENERATE(0U, 1U, 2U, 7U, 64U);
  CAPTURE(count, threads);
  std::vector<std::atomic<int>> calls(count);
  std::atomic<bool> worker_out_of_range = false;
  RequireOk(ParallelFor(count, threads, [&](size_t index, unsigned worker) -> Status {
    ++calls.at(index);
    if (worker != 0 && worker >= threads) worker_out_of_range = true;
    return {};
  }));
  int wrong = 0;
  for (const auto& n : calls) wrong += n == 1 ? 0 : 1;
  CHECK(wrong == 0);
  CHECK_FALSE(worker_out_of_range);
}

TEST_CASE("no two calls with the same worker overlap") {
  constexpr unsigned kThreads = 8;
  std::vector<std::atomic<bool>> busy(kThreads);
  std::atomic<int> overlaps = 0;
  RequireOk(ParallelFor(20'000, kThreads, [&](size_t, unsigned worker) -> Status {
    if (busy.at(worker).exchange(true)) ++overlaps;
    busy.at(worker) = false;
    return {};
  }));
  CHECK(overlaps == 0);
}

TEST_CASE("several workers run at the same time") {
  // Each of the two calls returns only after the other has started.
  std::atomic<int> started = 0;
  RequireOk(ParallelFor(2, 2, [&](size_t, unsigned) -> Status {
    ++started;
    started.notify_all();
    for (int seen = started; seen < 2; seen = started) started.wait(seen);
    return {};
  }));
  CHECK(started == 2);
}

TEST_CASE("one worker takes the indices in order and stops at the first failure") {
  std::vector<size_t> seen;
  const Status status = ParallelFor(100, 1, [&](size_t index, unsigned) -> Status {
    seen.push_back(index);
    return index >= 3 ? FailAt(index) : Status();
  });
  CheckError(status, ErrorKind::kMalformed, "task 3: failed");
  CHECK(seen == std::vector<size_t>{0, 1, 2, 3});
}

TEST_CASE("of several failures the one with the lowest index is returned") {
  // Index 0 fails only after index 1 has failed, and still comes first in the report.
  std::atomic<bool> second_failing = false;
  const Status status = ParallelFor(2, 2, [&](size_t index, unsigned) -> Status {
    if (index == 1) {
      second_failing = true;
      second_failing.notify_all();
    } else {
      second_failing.wait(false);
    }
    return FailAt(index);
  });
  CheckError(status, ErrorKind::kMalformed, "task 0: failed");
}

TEST_CASE("with every task failing the report does not depend on timing") {
  for (int round = 0; round < 200; ++round) {
    const Status status =
        ParallelFor(50, 8, [](size_t index, unsigned) -> Status { return FailAt(index); });
    REQUIRE(status.ToString() == "task 0: failed");
  }
}

TEST_CASE("an exception becomes a status") {
  const unsigned threads = GENERATE(1U, 4U);
  const Status status = ParallelFor(10, threads, [](size_t index, unsigned) -> Status {
    if (index == 2) throw std::runtime_error("a library threw");
    return {};
  });
  CheckError(status, ErrorKind::kSystem, "a library threw");
}

TEST_CASE("out of memory says what to do") {
  const unsigned threads = GENERATE(1U, 4U);
  const Status status =
      ParallelFor(10, threads, [](size_t, unsigned) -> Status { throw std::bad_alloc(); });
  CheckError(status, ErrorKind::kSystem, "out of memory. Use fewer threads with --jobs");
}

}  // namespace
}  // namespace prepack::testing
