#include "catch.h"
#include "prepack/gemm/engine.h"
#include "prepack/gemm/onednn/descriptor.h"
#include "status_matchers.h"

namespace prepack {
namespace {

TEST_CASE("a build without oneDNN says so, and what to do") {
  const Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.status().kind() == ErrorKind::kUnavailable);
  CHECK(engine.status().ToString() ==
        "oneDNN: prepack was built without it and has only the reference engine. Run "
        "tools/setup and build again, or choose --engine reference");
}

TEST_CASE("a build without oneDNN cannot ask it for its form") {
  const Result<OneDnnAnswer> answer = AskOneDnn({});
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.status().kind() == ErrorKind::kUnavailable);
  CHECK(answer.status().ToString() ==
        "oneDNN: prepack was built without it and cannot ask it for its form. Run tools/setup "
        "and build again, or choose --onednn-form blocked or plain");
}

}  // namespace
}  // namespace prepack
