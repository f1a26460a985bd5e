// Every real checkpoint, packed for every target, passes all levels, with the models of the
// kernels as engine.

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint_builder.h"
#include "planned_layouts.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/verify/gemm_inputs.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/in_parts.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

VerifyReport VerifyAll(const std::filesystem::path& output, const std::filesystem::path& source) {
  VerifyOptions options;
  options.folder = output;
  options.source = source;
  options.engine = EngineChoice::kReference;
  Progress progress;
  return Value(VerifyAlsoInParts(options, progress));
}

// What is left of a product that differs from the truth by the rounding of its output alone: of
// bf16 some 55 dB, on a sample of channels a little more or less.
double RoundingOf(const ModuleVerification& module, const PackedExample& example) {
  if (module.gemm->activations == "bf16" && module.layout == "vllm-cpu/fp8-vnni")
    return 52;  // twice
  if (module.gemm->activations == "bf16" || example.activations == DType::kBF16) return 54.5;
  return example.activations == DType::kF16 ? 73 : 140;
}

// Packs, verifies, and checks that modules lie in these layouts and all figures are there.
void CheckPasses(const std::filesystem::path& source, const PackedExample& example,
                 const std::map<std::string, size_t>& layouts) {
  TempFolder temp;
  CHECK(Pack(source, example, temp / "out").layouts == layouts);
  const VerifyReport report = VerifyAll(temp / "out", source);
  for (const LevelResult& level : report.levels) {
    for (const Problem& problem : level.problems)
      FAIL_CHECK(problem.where << ": " << problem.message);
  }
  CHECK(report.Verdict() == LevelState::kPassed);
  for (const ModuleVerification& module : report.modules) {
    INFO(module.module);
    REQUIRE(module.gemm);
    CHECK(module.gemm->implementation == "model of " + module.layout);
    const InputFigures& gaussian = module.gemm->inputs.at(kAllGaussianRows);
    CHECK(gaussian.kernel.sqnr_db >= RoundingOf(module, example));
    CHECK(gaussian.end_to_end.sqnr_db >= gaussian.end_to_end_bar_db.value_or(1000));
  }
}

using Layouts = PlannedLayouts::Layouts;

// Checkpoints that become the same layouts.
struct ExpectedGemm {
  std::vector<std::string> checkpoints;
  WantedScheme scheme;
  Layouts vllm;
  Layouts zentorch;
  Layouts onednn;
};

std::vector<ExpectedGemm> WithEightBitActivations() {
  using enum WantedScheme;
  const Layouts plain = {{"plain/bf16", 7}};
  return {
      {{"ct-w4a16-channel-sym", "ct-w4a16-g128-sym", "gptqmodel-w4-actorder-g128"},
       kW4A8,
       {{"vllm-cpu/int4-w4a8", 7}},
       {{"zentorch/da8w4", 7}},
       {{"onednn/w4a8", 7}}},
      {{"awq-gemm-g128", "ct-w4a16-g32-asym", "gptqmodel-w4-asym-v2"},
       kW4A8,
       {{"vllm-cpu/int4-w4a8", 7}},
       plain,
       {{"onednn/w4a8", 7}}},
      {{"ct-fp8-block", "ct-fp8-dynamic"}, kW8A8, {{"vllm-cpu/fp8-w8a8-vnni4", 7}}, plain, plain},
  };
}

TEST_CASE("every real checkpoint is the model still, packed for every target") {
  const PlannedLayouts planned;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("checkpoints"))) {
    const std::string checkpoint = entry.path().filename();
    for (const char* target : {"vllm-cpu", "zentorch", "onednn"}) {
      CAPTURE(checkpoint, target);
      CheckPasses(entry.path(), {.target = target}, planned.Of(checkpoint, target));
    }
  }
}

TEST_CASE("so it is with activations of eight bits") {
  for (const ExpectedGemm& row : WithEightBitActivations()) {
    for (const std::string& checkpoint : row.checkpoints) {
      CAPTURE(checkpoint);
      const std::filesystem::path source = Fixture("checkpoints/" + checkpoint);
      CheckPasses(source, {.target = "vllm-cpu", .scheme = row.scheme}, row.vllm);
      CheckPasses(source, {.target = "zentorch", .scheme = row.scheme}, row.zentorch);
      CheckPasses(source, {.target = "onednn", .scheme = row.scheme}, row.onednn);
    }
  }
}

TEST_CASE("so it is with activations of other types") {
  const std::filesystem::path asym = Fixture("checkpoints/ct-w4a16-g32-asym");
  const Layouts wna16 = {{"vllm-cpu/wna16", 7}};
  CheckPasses(asym, {.target = "vllm-cpu", .activations = DType::kF16}, wna16);
  const Layouts w4a16 = {{"onednn/w4a16", 7}};
  CheckPasses(asym, {.target = "onednn", .activations = DType::kF32}, w4a16);
  const Layouts w4a8 = {{"onednn/w4a8", 7}};
  const std::filesystem::path stored_w4a8 = Fixture("checkpoints/ct-w4a8");
  CheckPasses(stored_w4a8, {.target = "onednn", .activations = DType::kF16}, w4a8);
  CheckPasses(stored_w4a8, {.target = "onednn", .activations = DType::kF32}, w4a8);
}

// N = 64, K = 256.
struct Synthetic {
  const char* weight_dtype = "";      // "I8" or "F8_E4M3"
  std::vector<uint64_t> scale_shape;  // of weight_scale
  Json activations = nullptr;         // of the config
  bool static_input = false;
};

std::vector<std::byte> Bf16(const std::vector<float>& values) {
  std::vector<std::byte> bytes;
  for (const float value : values) {
    const uint16_t bits = F32ToBF16(value);
    bytes.push_back(static_cast<std::byte>(bits & 0xFFU));
    bytes.push_back(static_cast<std::byte>(bits >> 8));
  }
  return bytes;
}

// A layer with a bias that weighs as much as its product.
TestCheckpoint WithBias(const Synthetic& synthetic) {
  constexpr uint64_t kN = 64;
  constexpr uint64_t kK = 256;
  const bool fp8 = std::string_view(synthetic.weight_dtype) != "I8";
  const std::string strategy = synthetic.scale_shape.size() == 2 ? "channel" : "tensor";
  TestCheckpoint checkpoint;
  checkpoint.config = {{"quantization_config",
                        {{"quant_method", "compressed-tensors"},
                         {"format", fp8 ? "float-quantized" : "int-quantized"},
                         {"quantization_status", "compressed"},
                         {"version", "0.19.0"},
                         {"ignore", Json::array()},
                         {"config_groups",
                          {{"group_0",
                            {{"targets", {"Linear"}},
                             {"input_activations", synthetic.activations},
                             {"weights",
                              {{"num_bits", 8},
                               {"type", fp8 ? "float" : "int"},
                               {"strategy", strategy},
                               {"symmetric", true}}}}}}}}}};
  SplitMix64 random(1);
  std::vector<std::byte> weight(kN * kK);
  for (std::byte& byte : weight) {
    byte = static_cast<std::byte>(random.Next() & 0xFFU);
    if (fp8) byte |= std::byte{0x08};  // nothing below the normal numbers
    if (fp8 && (byte & std::byte{0x7F}) == std::byte{0x7F}) byte = std::byte{0x30};  // no NaN
  }
  std::vector<float> scales(synthetic.scale_shape.size() == 2 ? kN : 1);
  for (float& scale : scales) scale = static_cast<float>(0.01 + 0.01 * random.Uniform());
  std::vector<float> bias(kN);
  for (float& value : bias) value = static_cast<float>((fp8 ? 20 : 16) * random.Gaussian());
  const std::string module = "model.layers.0.mlp.up_proj";
  checkpoint.tensors = {
      {module + ".weight", synthetic.weight_dtype, {kN, kK}, weight},
      {module + ".weight_scale", "BF16", synthetic.scale_shape, Bf16(scales)},
      {module + ".bias", "BF16", {kN}, Bf16(bias)},
  };
  if (synthetic.static_input) {
    checkpoint.tensors.push_back({module + ".input_scale", "BF16", {1}, Bf16({0.03125F})});
    if (!synthetic.activations["symmetric"].get<bool>()) {
      checkpoint.tensors.push_back({module + ".input_zero_point", "I8", {1}, Hex("e0")});
    }
  }
  return checkpoint;
}

Json Int8Activations(bool dynamic, bool symmetric) {
  return {{"num_bits", 8},
          {"type", "int"},
          {"strategy", dynamic ? "token" : "tensor"},
          {"dynamic", dynamic},
          {"symmetric", symmetric}};
}

TEST_CASE("biases, static and asymmetric activations are part of the product") {
  struct Case {
    Synthetic synthetic;
    PackedExample example;
    const char* layout = "";
  };
  using enum WantedScheme;
  const std::vector<uint64_t> channel = {64, 1};
  const std::vector<uint64_t> tensor = {1};
  const Json dynamic = Int8Activations(true, true);
  const std::vector<Case> cases = {
      {{"I8", channel, dynamic}, {"vllm-cpu"}, "vllm-cpu/int8-vnni"},
      {{"I8", channel, dynamic}, {"zentorch"}, "zentorch/int8"},
      {{"I8", tensor, dynamic}, {"onednn"}, "onednn/w8a8"},
      {{"I8", channel, dynamic}, {"onednn", kAuto, DType::kF32}, "onednn/w8a8"},
      {{"I8", channel, Int8Activations(true, false)}, {"vllm-cpu"}, "vllm-cpu/int8-plain"},
      {{"I8", channel, Int8Activations(true, false)}, {"onednn"}, "onednn/w8a8"},
      {{"I8", channel, Int8Activations(false, true), true}, {"vllm-cpu"}, "vllm-cpu/int8-plain"},
      {{"I8", tensor, Int8Activations(false, false), true}, {"vllm-cpu"}, "vllm-cpu/int8-plain"},
      {{"I8", channel, Int8Activations(false, false), true}, {"onednn"}, "onednn/w8a8"},
      {{"F8_E4M3", channel}, {"vllm-cpu"}, "vllm-cpu/fp8-vnni"},
      {{"F8_E4M3", tensor}, {"vllm-cpu"}, "vllm-cpu/fp8-vnni"},
      {{"F8_E4M3", channel}, {"zentorch"}, "plain/bf16"},
      {{"F8_E4M3", channel}, {"zentorch", kAuto, DType::kF16}, "plain/bf16"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.layout, c.synthetic.activations.dump(), c.synthetic.scale_shape.size());
    TempFolder temp;
    WithBias(c.synthetic).Write(temp / "source");
    CheckPasses(temp / "source", c.example, {{c.layout, 1}});
  }
}

TEST_CASE("a source that lacks what the folder has does not pass") {
  const std::string module = "model.layers.0.mlp.up_proj";
  const TestCheckpoint checkpoint = WithBias({"I8", {64, 1}, Int8Activations(false, true), true});
  TempFolder temp;
  checkpoint.Write(temp / "source");
  Pack(temp / "source", {.target = "onednn"}, temp / "out");
  CHECK(RunModels(temp / "out", temp / "source").level.state == LevelState::kPassed);

  TestCheckpoint short_bias = checkpoint;
  short_bias.At(module + ".bias").shape = {32};
  short_bias.At(module + ".bias").bytes.resize(64);
  short_bias.Write(temp / "short");
  const LevelResult failed = RunModels(temp / "out", temp / "short").level;
  CHECK(failed.state == LevelState::kFailed);
  REQUIRE(failed.problems.size() == 1);
  CHECK(failed.problems[0].message.find("the bias of the source has another size") !=
        std::string::npos);

  TestCheckpoint dynamic = checkpoint;
  dynamic.Remove(module + ".input_scale");
  dynamic.Write(temp / "dynamic");
  const LevelResult not_run = RunModels(temp / "out", temp / "dynamic").level;
  CHECK(not_run.state == LevelState::kNotRun);
  REQUIRE(not_run.problems.size() == 1);
  CHECK(not_run.problems[0].message.find("input_scale: the second decoder does not find it") !=
        std::string::npos);
}

TEST_CASE("a module of zeros passes when all who multiply it give zeros") {
  TestCheckpoint checkpoint = WithBias({"I8", {64, 1}, Int8Activations(true, true)});
  std::ranges::fill(checkpoint.At("model.layers.0.mlp.up_proj.weight").bytes, std::byte{0});
  checkpoint.Remove("model.layers.0.mlp.up_proj.bias");
  TempFolder temp;
  checkpoint.Write(temp / "source");
  Pack(temp / "source", {.target = "zentorch"}, temp / "out");
  const VerifyReport report = VerifyAll(temp / "out", temp / "source");
  CHECK(report.level(Level::kExactness).state == LevelState::kPassed);
  CHECK(report.level(Level::kGemm).state == LevelState::kPassed);
  CHECK(report.level(Level::kGemm).problems.empty());
  REQUIRE(report.modules.size() == 1);
  REQUIRE(report.modules[0].gemm.has_value());
  const GemmFigures& gemm = *report.modules[0].gemm;
  constexpr double kExact = std::numeric_limits<double>::infinity();
  CHECK(gemm.agreement_db.value_or(kExact) == kExact);
  for (const InputFigures& input : gemm.inputs) {
    CHECK(input.kernel.sqnr_db == kExact);
  }
}

TEST_CASE("the bar end to end follows the activations, unless one is given") {
  const std::filesystem::path source = Fixture("checkpoints/ct-w8a8-dynamic");
  TempFolder temp;
  Pack(source, {.target = "vllm-cpu"}, temp / "out");
  VerifyOptions options;
  options.folder = temp / "out";
  options.source = source;
  Progress progress;
  const VerifyReport report = Value(VerifyAlsoInParts(options, progress));
  CHECK(report.Verdict() == LevelState::kPassed);
  CHECK(report.modules[0].gemm->inputs[kAllGaussianRows].end_to_end_bar_db == 35);
  options.min_sqnr = {{.pattern = "", .decibel = 43}};
  const VerifyReport strict = Value(VerifyAlsoInParts(options, progress));
  CHECK(strict.level(Level::kGemm).state == LevelState::kFailed);
  CHECK(strict.modules[0].gemm->inputs[kAllGaussianRows].end_to_end_bar_db == 43);
  REQUIRE_FALSE(strict.level(Level::kGemm).problems.empty());
  CHECK(strict.level(Level::kGemm).problems[0].message.find("expected at least 43.0 dB") !=
        std::string::npos);
}

}  // namespace
}  // namespace prepack::testing
