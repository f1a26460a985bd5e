#include "gemm/engine.h"

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
  std::vector<float> x = std::vector<float>(3 * 8, 1);
  std::vector<std::byte> codes = std::vector<std::byte>(5 * 4);
  std::vector<float> scales = std::vector<float>(5 * 2, 1);
  std::vector<uint8_t> zero_points = std::vector<uint8_t>(5 * 2, 8);
  std::vector<float> y = std::vector<float>(3 * 5);
  uint64_t m = 3;
  uint64_t n = 5;
  uint64_t k = 8;
  uint64_t group_size = 4;

  W4A16Problem Problem() const {
    return {.m = m,
            .n = n,
            .k = k,
            .group_size = group_size,
            .x = x,
            .codes = codes,
            .scales = scales,
            .zero_points = zero_points};
  }
  Status Check() const { return CheckProblem(Problem(), y); }
};

TEST_CASE("a sound problem is accepted, with and without zero points") {
  Example example;
  RequireOk(example.Check());
  example.zero_points.clear();
  RequireOk(example.Check());
}

TEST_CASE("every operand must have the size that the problem says") {
  Example example;
  std::string_view operand;
  SECTION("x") {
    example.x.pop_back(), operand = "x";
  }
  SECTION("codes") {
    example.codes.emplace_back(), operand = "codes";
  }
  SECTION("scales") {
    example.scales.pop_back(), operand = "scales";
  }
  SECTION("zero points") {
    example.zero_points.pop_back(), operand = "zero points";
  }
  SECTION("y") {
    example.y.push_back(0), operand = "y";
  }
  if (operand.empty()) return;
  CheckError(example.Check(), ErrorKind::kUsage,
             "GEMM: " + std::string(operand) + ": the size does not fit");
}

TEST_CASE("the message names both sizes") {
  Example example;
  example.codes.pop_back();
  CHECK(example.Check().ToString() ==
        "GEMM: codes: the size does not fit the problem (found 19 elements, expected 20)");
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

TEST_CASE("groups must divide K") {
  Example example;
  const uint64_t group_size = GENERATE(0, 3, 6, 16);
  example.group_size = group_size;
  CheckError(example.Check(), ErrorKind::kUsage,
             "K must be even, and the group size must divide it (found group size " +
                 std::to_string(group_size) + ", K = 8)");
}

TEST_CASE("sizes whose product overflows are refused") {
  Example example;
  example.m = std::numeric_limits<uint64_t>::max() / 8 + 2;  // times K: 8 after wrapping around
  example.x.resize(8);
  CheckError(example.Check(), ErrorKind::kUsage, "GEMM: x: the size does not fit");
}

TEST_CASE("the engine refuses a problem that does not fit") {
  Example example;
  example.scales.pop_back();
  const Result<std::unique_ptr<GemmEngine>> onednn = MakeOneDnnEngine();
  if (onednn.ok()) {
    CheckError((*onednn)->Run(example.Problem(), example.y).status(), ErrorKind::kUsage,
               "GEMM: scales");
  }
}

}  // namespace
}  // namespace prepack
