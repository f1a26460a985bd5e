// A thread that has no memory left ends in an error, not in the end of the process.

#include <new>

#include "catch.h"
#include "memory/counting_allocator.h"
#include "prepack/base/parallel.h"

namespace prepack::testing {
namespace {

TEST_CASE("threads that get no memory, not even for an error, end in one") {
  for (const unsigned threads : {1U, 2U, 4U}) {
    CAPTURE(threads);
    const Status status = ParallelFor(8, threads, [](size_t, unsigned) -> Status {
      FailAllocations(true);
      throw std::bad_alloc();
    });
    FailAllocations(false);
    REQUIRE_FALSE(status.ok());
    CHECK(status.kind() == ErrorKind::kSystem);
    CHECK(status.what() == "out of memory");
  }
}

}  // namespace
}  // namespace prepack::testing
