#include "prepack/base/progress.h"

#include <string_view>

#include "catch.h"
#include "prepack/base/parallel.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

TEST_CASE("progress counts what threads add, and begins anew with each stage") {
  Progress progress;
  CHECK(std::string_view(progress.stage()).empty());
  progress.Begin("packing", 5000);
  RequireOk(ParallelFor(1000, 4, [&](size_t, unsigned) -> Status {
    progress.Add(5);
    return {};
  }));
  CHECK(std::string_view(progress.stage()) == "packing");
  CHECK(progress.done() == 5000);
  CHECK(progress.total() == 5000);
  progress.Begin("hashing", 7);
  CHECK(std::string_view(progress.stage()) == "hashing");
  CHECK(progress.done() == 0);
  CHECK(progress.total() == 7);
}

}  // namespace
}  // namespace prepack::testing
