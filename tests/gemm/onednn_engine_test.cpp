#include <algorithm>
#include <thread>
#include <vector>

#include "catch.h"
#include "gemm/engine.h"
#include "gemm/gemm_example.h"
#include "gemm/golden_gemm_file.h"
#include "gemm/reference.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::GemmExample;
using testing::GemmShape;
using testing::GoldenGemm;
using testing::kGemmShapes;
using testing::ReadGoldenGemms;
using testing::Value;

std::vector<float> Run(GemmEngine& engine, const W4A16Problem& problem) {
  std::vector<float> y(problem.m * problem.n, -1);
  const GemmInfo info = Value(engine.Run(problem, y));
  CHECK_FALSE(info.implementation.empty());
  // Where there is no bf16 kernel the weights are used in f32, as they are.
  CHECK(info.activation_type == (info.rounds_weights_to_bf16 ? "bf16" : "f32 (bf16 values)"));
  return y;
}

TEST_CASE("the oneDNN engine needs no preparation and says its version") {
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  CHECK(engine->name().starts_with("onednn 3."));
}

// Wrong order of scales or zero points, of nibbles or of dimensions: nothing of that gets through.
TEST_CASE("the oneDNN engine gives exact results exactly, whatever the sizes") {
  const GemmShape& shape = GENERATE(from_range(std::begin(kGemmShapes), std::end(kGemmShapes)));
  const bool symmetric = GENERATE(true, false);
  CAPTURE(shape.m, shape.n, shape.k, shape.group_size, symmetric);
  const GemmExample example(shape.m, shape.n, shape.k, shape.group_size, symmetric);
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  CHECK(Run(*engine, example.problem) == example.y);
}

TEST_CASE("the oneDNN engine leaves its operands alone") {
  const GemmExample example(4, 16, 64, 32, false);
  const std::vector<float> x = example.x;
  const std::vector<std::byte> codes = example.codes;
  const std::vector<float> scales = example.scales;
  const std::vector<uint8_t> zero_points = example.zero_points;
  Run(*Value(MakeOneDnnEngine()), example.problem);
  CHECK((x == example.x));
  CHECK((codes == example.codes));
  CHECK((scales == example.scales));
  CHECK((zero_points == example.zero_points));
}

// The real data of the other engine's test. 45 dB: bf16 results alone leave 52 dB and more, one
// wrong nibble in a hundred costs 20 dB.
TEST_CASE("the oneDNN engine is as near to f64 as bf16 results allow") {
  const char* const prefix = GENERATE("vllm-cpu_wna16", "zentorch_woq");
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  const std::vector<GoldenGemm> goldens = ReadGoldenGemms(prefix);
  CHECK_FALSE(goldens.empty());
  for (const GoldenGemm& golden : goldens) {
    CAPTURE(golden.name);
    const std::vector<double> x(golden.x.begin(), golden.x.end());
    std::vector<double> truth(golden.m * golden.n);
    ReferenceGemm(Isa::kScalar, golden.m, golden.n, golden.k, x, golden.Weights(), truth);
    SqnrAccumulator sqnr;
    sqnr.Add(truth, Run(*engine, golden.Problem()));
    CHECK(sqnr.Decibel() >= 45);
  }
}

TEST_CASE("groups that oneDNN does not take are multiplied as f32 weights, and it says so") {
  const uint64_t group_size = GENERATE(2, 9, 36);
  CAPTURE(group_size);
  const GemmExample example(3, 16, 72, group_size, false);
  std::vector<float> y(example.y.size());
  const GemmInfo info = Value(Value(MakeOneDnnEngine())->Run(example.problem, y));
  CHECK(y == example.y);
  CHECK(info.implementation.ends_with(", weights as f32"));
  CHECK_FALSE(info.rounds_weights_to_bf16);
}

TEST_CASE("oneDNN engines of several threads do not disturb each other") {
  const GemmExample example(16, 33, 256, 64, false);
  std::vector<std::vector<float>> results(4);
  {
    std::vector<std::jthread> threads;
    for (std::vector<float>& y : results) {
      threads.emplace_back([&y, &example] {
        const Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
        y.resize(example.y.size());
        if (!engine.ok() || !(*engine)->Run(example.problem, y).ok()) y.clear();
      });
    }
  }
  for (const std::vector<float>& y : results) CHECK((y == example.y));
}

}  // namespace
}  // namespace prepack
