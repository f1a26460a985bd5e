#include "prepack/base/progress.h"

#include <csignal>

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("cancellation is one flag that can be set and taken back") {
  ResetCancellation();
  CHECK_FALSE(CancellationRequested());
  RequestCancellation();
  CHECK(CancellationRequested());
  RequestCancellation();
  CHECK(CancellationRequested());
  ResetCancellation();
  CHECK_FALSE(CancellationRequested());
}

TEST_CASE("cancellation can be requested from a signal handler") {
  ResetCancellation();
  auto* const previous = std::signal(SIGUSR1, [](int) { RequestCancellation(); });
  REQUIRE(std::raise(SIGUSR1) == 0);
  std::signal(SIGUSR1, previous);
  CHECK(CancellationRequested());
  ResetCancellation();
}

}  // namespace
}  // namespace prepack::testing
