// The engines on the inputs of the golden files: against f64, and against the output of the real
// op.

#include "gemm/engine.h"

#include <cmath>

#include "base/float_convert.h"
#include "gemm/reference.h"
#include "golden_file.h"

namespace prepack {
namespace {

using testing::GoldenFile;
using testing::GoldenFiles;

// A golden file of a bf16 kernel as a problem for an engine.
class GoldenProblem {
 public:
  explicit GoldenProblem(const GoldenFile& golden) : golden_(golden), request_(golden.Request()) {
    for (const uint16_t bits : golden.Values<uint16_t>("x")) x_.push_back(BF16ToF32(bits));
    codes_ = golden.Panel();
    const std::vector<float> scales = golden.Values<float>("scales");
    const bool f32_scales = golden.At("packed.weight_scale").dtype == DType::kF32;
    for (const float scale : scales) {
      scales_.push_back(f32_scales ? scale : BF16ToF32(F32ToBF16(scale)));
    }
    if (golden.Has("zero_points")) zero_points_ = golden.Values<uint8_t>("zero_points");
    if (golden.Has("bias")) bias_ = golden.Values<float>("bias");
  }

  W4A16Problem Problem() const {
    return {.m = golden_.At("x").shape.at(0),
            .n = request_.n,
            .k = request_.k,
            .group_size = request_.scheme.group_size,
            .x = x_,
            .codes = codes_,
            .scales = scales_,
            .zero_points = zero_points_};
  }

  // x · Wᵀ in f64, with weights rounded to bf16 or not.
  std::vector<double> Truth(bool round_weights) const {
    const W4A16Problem problem = Problem();
    std::vector<double> weights;
    for (uint64_t n = 0; n < problem.n; ++n) {
      for (uint64_t k = 0; k < problem.k; ++k) {
        const uint64_t group = n * request_.groups() + k / problem.group_size;
        const int zero_point = zero_points_.empty() ? 8 : zero_points_[group];
        const int step = static_cast<int>(PanelCode(codes_, problem.k, n, k)) - zero_point;
        const float weight = static_cast<float>(step) * scales_[group];
        weights.push_back(
            static_cast<double>(round_weights ? BF16ToF32(F32ToBF16(weight)) : weight));
      }
    }
    const std::vector<double> x(x_.begin(), x_.end());
    std::vector<double> y(problem.m * problem.n);
    ReferenceGemm(problem.m, problem.n, problem.k, x, weights, y);
    return y;
  }

  bool HasBias() const { return !bias_.empty(); }

 private:
  const GoldenFile& golden_;
  PackRequest request_;
  std::vector<float> x_;
  std::vector<std::byte> codes_;
  std::vector<float> scales_;
  std::vector<uint8_t> zero_points_;
  std::vector<float> bias_;
};

bool IsBF16(const GoldenFile& golden) {
  return golden.At("x").dtype == DType::kBF16;
}

// Runs the engine on every bf16 golden file; returns how many there were.
size_t CheckAgainstTruth(GemmEngine& engine) {
  size_t files = 0;
  for (const auto& path : GoldenFiles()) {
    const GoldenFile golden(path);
    if (!IsBF16(golden)) continue;
    INFO(path.filename());
    const GoldenProblem problem(golden);
    std::vector<float> y(golden.At("y").shape.at(0) * golden.n());
    const Result<GemmInfo> info = engine.Run(problem.Problem(), y);
    INFO(info.status().ToString());
    REQUIRE(info.ok());
    CHECK_FALSE(info->implementation.empty());
    SqnrAccumulator sqnr;
    sqnr.Add(problem.Truth(info->rounds_weights_to_bf16), y);
    CHECK(sqnr.Decibel() > 50);  // what rounding the result to bf16 leaves
    for (const float value : y) REQUIRE(BF16ToF32(F32ToBF16(value)) == value);
    ++files;
  }
  return files;
}

TEST_CASE("the reference engine agrees with f64") {
  CHECK(CheckAgainstTruth(*MakeReferenceEngine()) == 61);
}

TEST_CASE("the reference engine computes what cpu_gemm_wna16 computes, to the bit") {
  const std::unique_ptr<GemmEngine> engine = MakeReferenceEngine();
  size_t files = 0;
  size_t differing = 0;
  for (const auto& path : GoldenFiles()) {
    const GoldenFile golden(path);
    if (golden.layout() != "vllm-cpu/wna16" || !IsBF16(golden)) continue;
    const GoldenProblem problem(golden);
    if (problem.HasBias()) continue;  // the engine has none
    INFO(path.filename());
    std::vector<float> y(golden.At("y").shape.at(0) * golden.n());
    REQUIRE(engine->Run(problem.Problem(), y).ok());
    const std::vector<uint16_t> real = golden.Values<uint16_t>("y");
    for (size_t i = 0; i < y.size(); ++i) {
      if (F32ToBF16(y[i]) != real[i]) ++differing;
    }
    ++files;
  }
  CHECK(files == 28);
  CHECK(differing == 0);
}

#ifdef PREPACK_HAS_ONEDNN
TEST_CASE("oneDNN agrees with f64") {
  Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  INFO(engine.status().ToString());
  REQUIRE(engine.ok());
  CHECK((*engine)->name().starts_with("onednn 3."));
  CHECK(CheckAgainstTruth(**engine) == 61);
}

TEST_CASE("groups of two channels are multiplied as f32 weights where no 4-bit kernel takes them") {
  Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  REQUIRE(engine.ok());
  const std::vector<float> x = {1, 2, 4, 8};
  const std::vector<std::byte> codes = {std::byte{0x9A}, std::byte{0x79}};  // 10 9 9 7
  const std::vector<float> scales = {0.5F, 2};
  const std::vector<uint8_t> zero_points = {8, 6};
  std::vector<float> y(1);
  const Result<GemmInfo> info = (*engine)->Run({.m = 1,
                                                .n = 1,
                                                .k = 4,
                                                .group_size = 2,
                                                .x = x,
                                                .codes = codes,
                                                .scales = scales,
                                                .zero_points = zero_points},
                                               y);
  INFO(info.status().ToString());
  REQUIRE(info.ok());
  CHECK(y.front() == 1 * 1 + 2 * 0.5F + 4 * 6 + 8 * 2);
}
#else
TEST_CASE("without oneDNN its engine says how to get it") {
  const Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  REQUIRE_FALSE(engine.ok());
  CHECK(engine.status().kind() == ErrorKind::kUnavailable);
  CHECK_THAT(engine.status().hint(), Catch::Contains("tools/setup"));
}
#endif

}  // namespace
}  // namespace prepack
