#include <vector>

#include "base/float_convert.h"
#include "catch.h"
#include "gemm/engine.h"
#include "gemm/gemm_example.h"
#include "gemm/golden_gemm_file.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::GemmExample;
using testing::GemmShape;
using testing::GoldenGemm;
using testing::kGemmShapes;
using testing::ReadGoldenGemms;
using testing::Value;

std::vector<float> Run(const W4A16Problem& problem) {
  std::vector<float> y(problem.m * problem.n, -1);
  const GemmInfo info = Value(MakeReferenceEngine()->Run(problem, y));
  CHECK(info.implementation == "portable");
  CHECK(info.rounds_weights_to_bf16);
  CHECK(info.activation_type == "bf16");
  return y;
}

TEST_CASE("the reference engine has a name") {
  CHECK(MakeReferenceEngine()->name() == "reference");
}

TEST_CASE("the reference engine on a problem worked out by hand") {
  const std::vector<float> x = {1, 2, 4, 8};
  // Channel 0 holds the codes 1 2 3 4, channel 1 the codes 15 0 8 7.
  const std::vector<std::byte> codes = {std::byte{0x21}, std::byte{0x43}, std::byte{0x0F},
                                        std::byte{0x78}};
  const std::vector<float> scales = {1, 0.5F, 2, 4};
  const std::vector<uint8_t> zero_points = {0, 1, 15, 7};
  W4A16Problem problem{.m = 1,
                       .n = 2,
                       .k = 4,
                       .group_size = 2,
                       .x = x,
                       .codes = codes,
                       .scales = scales,
                       .zero_points = {}};
  // Zero point 8: (−7 · 1 − 6 · 2) · 1 + (−5 · 4 − 4 · 8) · 0.5, (7 · 1 − 8 · 2) · 2 + (0 − 8) · 4
  CHECK(Run(problem) == std::vector<float>{-45, -50});
  problem.zero_points = zero_points;
  // (1 · 1 + 2 · 2) · 1 + (2 · 4 + 3 · 8) · 0.5, (0 · 1 − 15 · 2) · 2 + (1 · 4 + 0) · 4
  CHECK(Run(problem) == std::vector<float>{21, -44});
}

TEST_CASE("the reference engine rounds the weight, the sum only at the end") {
  // 7 · 0x1.02p0 = 7.0546875, between the bf16 numbers 7.03125 and 7.0625.
  const std::vector<float> scales = {0x1.02p0F};
  const std::vector<std::byte> codes = {std::byte{0x8F}};
  std::vector<float> x = {1, 0};
  const W4A16Problem problem{.m = 1,
                             .n = 1,
                             .k = 2,
                             .group_size = 2,
                             .x = x,
                             .codes = codes,
                             .scales = scales,
                             .zero_points = {}};
  CHECK(Run(problem) == std::vector<float>{7.0625F});

  // Sums of 1 and 2^-8: each alone would vanish in a bf16 sum, two of them do not in f32.
  const std::vector<float> unit = {1};
  const std::vector<std::byte> ones = {std::byte{0x99}, std::byte{0x99}};
  x = {1, 0x1p-8F, 0x1p-8F, 0};
  CHECK(Run({.m = 1,
             .n = 1,
             .k = 4,
             .group_size = 4,
             .x = x,
             .codes = ones,
             .scales = unit,
             .zero_points = {}}) == std::vector<float>{1 + 0x1p-7F});
}

TEST_CASE("the reference engine sums in ascending k") {
  // In f32, 2^24 + 1 - 2^24 is 0 from the left; any other order gives 1.
  const std::vector<float> x = {0x1p24F, 1, -0x1p24F, 0};
  const std::vector<std::byte> ones = {std::byte{0x99}, std::byte{0x99}};
  const std::vector<float> unit = {1};
  CHECK(Run({.m = 1,
             .n = 1,
             .k = 4,
             .group_size = 4,
             .x = x,
             .codes = ones,
             .scales = unit,
             .zero_points = {}}) == std::vector<float>{0});
}

TEST_CASE("the reference engine gives exact results exactly, whatever the sizes") {
  const GemmShape& shape = GENERATE(from_range(std::begin(kGemmShapes), std::end(kGemmShapes)));
  const bool symmetric = GENERATE(true, false);
  CAPTURE(shape.m, shape.n, shape.k, shape.group_size, symmetric);
  const GemmExample example(shape.m, shape.n, shape.k, shape.group_size, symmetric);
  CHECK(Run(example.problem) == example.y);
}

TEST_CASE("the reference engine takes groups of any size") {
  const uint64_t group_size = GENERATE(1, 2, 3, 6, 9, 18, 36, 72);
  const GemmExample example(3, 19, 72, group_size, false);
  CHECK(Run(example.problem) == example.y);
}

// Outputs of vLLM's cpu_gemm_wna16 and of zentorch_woq_linear: long sums, extreme codes, scales of
// both signs, subnormal weights (which these ops count as zero). Not one bit may differ.
TEST_CASE("the reference engine computes what the real ops do, bit for bit") {
  struct Op {
    const char* prefix;
    size_t files;
  };
  const Op op = GENERATE(Op{"vllm-cpu_wna16", 28}, Op{"zentorch_woq", 29});
  CAPTURE(op.prefix);
  const std::vector<GoldenGemm> goldens = ReadGoldenGemms(op.prefix);
  CHECK(goldens.size() == op.files);
  for (const GoldenGemm& golden : goldens) {
    CAPTURE(golden.name);
    std::vector<uint16_t> y;
    for (const float value : Run(golden.Problem())) y.push_back(F32ToBF16(value));
    CHECK((y == golden.y));
  }
}

}  // namespace
}  // namespace prepack
