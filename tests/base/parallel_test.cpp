#include "base/parallel.h"

#include <atomic>
#include <new>
#include <stdexcept>
#include <vector>

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("every index runs once, for any number of threads") {
  for (const unsigned threads : {1U, 2U, 7U, 64U}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{1000}}) {
      std::vector<std::atomic<int>> runs(count);
      std::vector<std::atomic<int>> busy(threads);
      std::atomic<bool> overlap = false;
      const Status status = ParallelFor(count, threads, [&](size_t index, unsigned worker) {
        if (worker >= threads || busy[worker].fetch_add(1) != 0) overlap = true;
        ++runs[index];
        --busy[worker];
        return Status();
      });
      CHECK(status.ok());
      CHECK_FALSE(overlap);
      for (const auto& run : runs) REQUIRE(run == 1);
    }
  }
}

TEST_CASE("the failure with the lowest index is reported, and work stops") {
  std::atomic<size_t> started = 0;
  const Status status = ParallelFor(1'000'000, 4, [&](size_t index, unsigned) -> Status {
    ++started;
    if (index >= 10) return Malformed("index " + std::to_string(index), "bad");
    return {};
  });
  REQUIRE_FALSE(status.ok());
  CHECK(status.where() == "index 10");
  CHECK(started < 1'000'000);
}

TEST_CASE("exceptions become errors") {
  const Status memory =
      ParallelFor(1, 1, [](size_t, unsigned) -> Status { throw std::bad_alloc(); });
  REQUIRE_FALSE(memory.ok());
  CHECK(memory.kind() == ErrorKind::kSystem);
  CHECK(memory.what() == "out of memory");
  const Status other =
      ParallelFor(3, 2, [](size_t, unsigned) -> Status { throw std::runtime_error("odd"); });
  REQUIRE_FALSE(other.ok());
  CHECK(other.what() == "odd");
}

TEST_CASE("zero jobs means one thread per CPU") {
  CHECK(ThreadCount(0) >= 1);
  CHECK(ThreadCount(5) == 5);
}

}  // namespace
}  // namespace prepack
