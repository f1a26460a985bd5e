#include "prepack/gemm/engine.h"

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::RequireOk;

// A sound problem whose parts the tests break one by one.
struct Example {
  std::vector<float> x = std::vector<float>(24, 1);
  std::vector<float> w = std::vector<float>(40, 1);
  std::vector<float> y = std::vector<float>(15);
  uint64_t m = 3;
  uint64_t n = 5;
  uint64_t k = 8;

  FloatProblem Problem() const { return {.m = m, .n = n, .k = k, .x = x, .w = w}; }
  Status Check() const { return CheckProblem(Problem(), y); }
};

TEST_CASE("a sound problem is accepted") {
  RequireOk(Example().Check());
}

TEST_CASE("every operand must have the size that the problem says") {
  Example example;
  std::string_view operand;
  SECTION("x") {
    example.x.pop_back(), operand = "x";
  }
  SECTION("w") {
    example.w.emplace_back(), operand = "w";
  }
  SECTION("y") {
    example.y.push_back(0), operand = "y";
  }
  if (operand.empty()) return;
  CheckError(example.Check(), ErrorKind::kUsage,
             "GEMM: " + std::string(operand) + ": the size does not match");
}

TEST_CASE("the message names both sizes") {
  Example example;
  example.w.pop_back();
  CHECK(example.Check().ToString() ==
        "GEMM: w: the size does not match the problem (found 39 elements, expected 40)");
}

TEST_CASE("sizes of zero are refused") {
  Example example;
  SECTION("M") {
    example.m = 0;
  }
  SECTION("N") {
    example.n = 0;
  }
  SECTION("K") {
    example.k = 0;
  }
  if (example.m * example.n * example.k != 0) return;
  CheckError(example.Check(), ErrorKind::kUsage, "M, N and K must not be zero");
}

TEST_CASE("sizes whose product overflows are refused") {
  Example example;
  example.m = std::numeric_limits<uint64_t>::max() / 8 + 2;  // times K: 8 after wrapping around
  example.x.resize(8);
  CheckError(example.Check(), ErrorKind::kUsage, "GEMM: x: the size does not match");
}

TEST_CASE("the engine refuses a problem that does not fit") {
  Example example;
  example.w.pop_back();
  const Result<std::unique_ptr<GemmEngine>> onednn = MakeOneDnnEngine();
  if (onednn.ok()) {
    CheckError((*onednn)->MultiplyFloats(example.Problem(), example.y).status(), ErrorKind::kUsage,
               "GEMM: w");
  }
}

}  // namespace
}  // namespace prepack
