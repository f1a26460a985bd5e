#include "catch.h"
#include "gemm/engine.h"
#include "status_matchers.h"

namespace prepack {
namespace {

TEST_CASE("a build without oneDNN says so, and what to do") {
  const Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.status().kind() == ErrorKind::kUnavailable);
  CHECK(engine.status().ToString() ==
        "oneDNN: prepack was built without it, so only the reference engine is here. Run "
        "tools/setup and build again, or choose --engine reference");
}

}  // namespace
}  // namespace prepack
