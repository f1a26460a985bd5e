#include "prepack/gemm/engine.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "prepack/base/checked.h"

namespace prepack {
namespace {

Status CheckSize(std::string_view operand, size_t found, std::optional<uint64_t> expected) {
  if (expected && found == *expected) return {};
  return Usage(fmt::format("GEMM: {}", operand), "the size does not match the problem")
      .Found(fmt::format("{} elements", found))
      .Expected(expected ? fmt::format("{}", *expected) : "a number below 2^64");
}

}  // namespace

Status CheckProblem(const FloatProblem& problem, std::span<const float> y) {
  if (problem.m == 0 || problem.n == 0 || problem.k == 0) {
    return Usage("GEMM", "M, N and K must not be zero")
        .Found(fmt::format("{} x {} x {}", problem.m, problem.n, problem.k));
  }
  PREPACK_TRY(CheckSize("x", problem.x.size(), CheckedMul(problem.m, problem.k)));
  PREPACK_TRY(CheckSize("w", problem.w.size(), CheckedMul(problem.n, problem.k)));
  return CheckSize("y", y.size(), CheckedMul(problem.m, problem.n));
}

}  // namespace prepack
