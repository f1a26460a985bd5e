#include <array>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "gemm/kernel_model_file.h"
#include "gemm/nibble_module.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/gemm/engine.h"
#include "prepack/gemm/onednn/descriptor.h"
#include "prepack/layouts/table.h"
#include "prepack/verify/products.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// A random problem and its result: small integers, so that every sum in whatever order is exact.
struct FloatExample {
  std::vector<float> x;
  std::vector<float> w;
  std::vector<float> y;
  FloatProblem problem;

  FloatExample(uint64_t m, uint64_t n, uint64_t k) : x(m * k), w(n * k), y(m * n) {
    SplitMix64 random(m * 1'000'003 + n * 1009 + k);
    for (float& value : x) value = static_cast<float>(random.Below(9)) - 4;
    for (float& value : w) value = static_cast<float>(random.Below(9)) - 4;
    for (uint64_t row = 0; row < m; ++row) {
      for (uint64_t channel = 0; channel < n; ++channel) {
        for (uint64_t i = 0; i < k; ++i) {
          y[row * n + channel] += x[row * k + i] * w[channel * k + i];
        }
      }
    }
    problem = {.m = m, .n = n, .k = k, .x = x, .w = w};
  }
  FloatExample(const FloatExample&) = delete;  // `problem` refers to the arrays
  FloatExample& operator=(const FloatExample&) = delete;
};

TEST_CASE("the oneDNN engine needs no preparation and says its version") {
  CHECK(Value(MakeOneDnnEngine())->name().starts_with("onednn 3."));
}

TEST_CASE("the oneDNN engine gives exact results exactly, whatever the sizes") {
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  for (const auto& [m, n, k] : std::vector<std::array<uint64_t, 3>>{
           {1, 1, 1}, {2, 7, 40}, {3, 15, 97}, {16, 33, 256}, {64, 160, 512}}) {
    CAPTURE(m, n, k);
    const FloatExample example(m, n, k);
    const std::vector<float> x = example.x;
    const std::vector<float> w = example.w;
    std::vector<float> y(example.y.size(), -1);
    const GemmInfo info = Value(engine->MultiplyFloats(example.problem, y));
    CHECK((y == example.y));
    CHECK_FALSE(info.implementation.empty());
    CHECK((x == example.x));
    CHECK((w == example.w));
  }
}

TEST_CASE("oneDNN engines of several threads do not disturb each other") {
  const FloatExample example(16, 33, 256);
  std::vector<std::vector<float>> results(4);
  {
    std::vector<std::jthread> threads;
    threads.reserve(results.size());
    for (std::vector<float>& y : results) {
      threads.emplace_back([&y, &example] {
        const Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
        y.resize(example.y.size());
        if (!engine.ok() || !(*engine)->MultiplyFloats(example.problem, y).ok()) y.clear();
      });
    }
  }
  for (const std::vector<float>& y : results) CHECK((y == example.y));
}

// The module that a golden file holds, as the layout is asked to pack it.
PackRequest RequestOfFile(const KernelModelFile& golden) {
  PackRequest request;
  request.n = golden.packed.n;
  request.k = golden.packed.k;
  request.activation_dtype = golden.input.dtype;
  request.scheme.group_size = golden.packed.group_size;
  request.scheme.code = CodeType::kS8;
  request.scheme.bits = 8;
  ActivationScheme& activations = request.scheme.activations;
  activations.type = ActivationType::kInt;
  activations.dynamic = golden.packed.input_scale == 0;
  activations.symmetric = golden.packed.activations == ActivationQuantizer::kDynamicSymmetric ||
                          golden.packed.activations == ActivationQuantizer::kStaticSymmetric;
  request.weights_desc = golden.packed.weight.size() == request.n * request.k
                             ? PlainDesc(request.k, request.n)
                             : DefaultW8A8Desc(request);
  return request;
}

double SqnrOf(const std::vector<float>& truth, const std::vector<float>& found) {
  FigureSums sums;
  sums.Add({.n0 = 0, .rows = truth.size(), .channels = 1},
           std::vector<double>(truth.begin(), truth.end()), found);
  return sums.Result().sqnr_db;
}

// 50 dB: both outputs are rounded to bf16, and a CPU without bf16 multiplies unrounded weights. One
// wrong nibble in a hundred costs 20 dB.
TEST_CASE("the primitives compute on packed 4-bit weights what the models predict") {
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  for (const std::string layout : {"onednn/w4a16", "onednn/w4a8"}) {
    for (const bool symmetric : {true, false}) {
      for (const auto& [m, n, k, group_size] : std::vector<std::array<uint64_t, 4>>{
               {1, 64, 128, 32}, {8, 34, 96, 96}, {33, 128, 512, 128}}) {
        CAPTURE(layout, symmetric, m, n, k);
        const NibbleModule module(m, n, k, group_size, symmetric);
        PackRequest request = module.request;
        if (layout == "onednn/w4a8") request.scheme.activations.type = ActivationType::kInt;
        const PackedProblem problem{.layout = layout,
                                    .request = request,
                                    .packed = module.packed,
                                    .input = {.m = m, .dtype = DType::kBF16, .x = module.x}};
        std::vector<float> y(m * n);
        const GemmInfo info = Value(engine->MultiplyPacked(problem, y));
        CHECK(info.is_reference == info.implementation.starts_with("ref"));
        CHECK(Value(engine->DescribePacked(problem)).implementation == info.implementation);
        std::vector<float> predicted(m * n);
        const auto model = Value(MakeKernelModel(layout, module.packed, problem.input));
        RequireOk(model->Run(0, predicted));
        CHECK(SqnrOf(predicted, y) >= 50);
      }
    }
  }
}

// The real outputs are of a CPU with VNNI. Where sums saturate, the engine refuses; it then has
// portable kernels for static activations alone, which are exact.
TEST_CASE("the primitives compute on int8 weights what the real ones did") {
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  const std::string layout = "onednn/w8a8";
  size_t compared = 0;
  for (const std::filesystem::path& path : GoldenFilesOf(layout)) {
    const KernelModelFile golden(path);
    CAPTURE(golden.name);
    const PackRequest request = RequestOfFile(golden);
    const PackedProblem problem{.layout = layout,
                                .request = request,
                                .packed = golden.packed,
                                .input = golden.input,
                                .repack = true};
    std::vector<float> y(golden.y.size());
    const Result<GemmInfo> info = engine->MultiplyPacked(problem, y);
    if (!info.ok()) {
      CheckError(info.status(), ErrorKind::kUnavailable, "its int8 matmul saturates at 16 bits");
      continue;
    }
    CHECK(SqnrOf(golden.y, y) >= 50);
    ++compared;
  }
  CHECK(compared >= 2);
}

TEST_CASE("with static activations the primitive adds the bias") {
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  for (const std::filesystem::path& path : GoldenFilesOf("onednn/w8a8")) {
    const KernelModelFile golden(path);
    if (golden.packed.input_scale == 0) continue;
    CAPTURE(golden.name);
    std::vector<uint16_t> bias;  // as large as the outputs
    for (uint64_t n = 0; n < golden.packed.n; ++n) bias.push_back(F32ToBF16(golden.y[n] * 2));
    PackedOperands packed = golden.packed;
    packed.bias = std::as_bytes(std::span(bias));
    packed.bias_dtype = DType::kBF16;
    ModelInput input = golden.input;
    input.dtype = DType::kBF16;
    PackRequest request = RequestOfFile(golden);
    request.activation_dtype = DType::kBF16;
    std::vector<float> predicted(golden.y.size());
    RequireOk(Value(MakeKernelModel("onednn/w8a8", packed, input))->Run(0, predicted));
    std::vector<float> y(golden.y.size());
    RequireOk(engine
                  ->MultiplyPacked({.layout = "onednn/w8a8",
                                    .request = request,
                                    .packed = packed,
                                    .input = input,
                                    .repack = true},
                                   y)
                  .status());
    CHECK(SqnrOf(predicted, y) >= 50);
  }
}

// A module with a blocked and a plain form, of which this CPU wants one.
struct TwoForms {
  const std::vector<float> scale = std::vector<float>(64, 1);
  const std::vector<float> x = std::vector<float>(128, 1);
  PackRequest request;
  BlockedDesc wanted;
  BlockedDesc other;

  TwoForms() {
    request.n = 64;
    request.k = 128;
    request.scheme.code = CodeType::kS8;
    request.scheme.bits = 8;
    request.scheme.group_size = 128;
    request.scheme.activations.type = ActivationType::kInt;
    request.scheme.activations.dynamic = false;
    wanted = Value(AskOneDnn(request)).weights_desc;
    other = PlainDesc(128, 64);
    if (wanted == other) other = DefaultW8A8Desc(request);
  }

  PackedOperands Packed(std::span<const std::byte> weight) const {
    PackedOperands packed;
    packed.n = 64;
    packed.k = 128;
    packed.group_size = 128;
    packed.weight = weight;
    packed.scale = std::as_bytes(std::span(scale));
    packed.input_scale = 1;
    return packed;
  }
  ModelInput Input() const { return {.m = 1, .dtype = DType::kBF16, .x = x}; }
};

TEST_CASE("weights in a form that oneDNN does not want here are not multiplied") {
  TwoForms forms;
  const std::vector<std::byte> weight(uint64_t{64} * 128 + 256);
  const PackedOperands packed = forms.Packed(weight);
  const std::unique_ptr<GemmEngine> engine = Value(MakeOneDnnEngine());
  std::vector<float> y(64);
  forms.request.weights_desc = forms.other;
  PackedProblem problem{
      .layout = "onednn/w8a8", .request = forms.request, .packed = packed, .input = forms.Input()};
  const Status status = engine->MultiplyPacked(problem, y).status();
  CheckError(status, ErrorKind::kUnsupported, "it wants another form of the weights");
  CHECK(status.ToString().find("found " + forms.other.Name()) != std::string::npos);
  CHECK(status.ToString().find("expected " + forms.wanted.Name()) != std::string::npos);
  CHECK_FALSE(engine->DescribePacked(problem).ok());
  problem.repack = true;
  RequireOk(engine->MultiplyPacked(problem, y).status());
  CHECK(y == std::vector<float>(64, 0));
}

TEST_CASE("weights of another size than their descriptor are malformed") {
  TwoForms forms;
  const std::vector<std::byte> weight(100);
  const PackedOperands packed = forms.Packed(weight);
  forms.request.weights_desc = forms.wanted;
  std::vector<float> y(64);
  CheckError(Value(MakeOneDnnEngine())
                 ->MultiplyPacked({.layout = "onednn/w8a8",
                                   .request = forms.request,
                                   .packed = packed,
                                   .input = forms.Input()},
                                  y)
                 .status(),
             ErrorKind::kMalformed, "its size differs from that of oneDNN's descriptor");
}

}  // namespace
}  // namespace prepack::testing
