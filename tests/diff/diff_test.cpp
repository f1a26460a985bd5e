#include "prepack/diff/diff.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "check/wide_example.h"
#include "formats/fp4_example.h"
#include "formats/fp8_example.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

DiffReport RunDiff(const TestCheckpoint& a, const TestCheckpoint& b, unsigned jobs = 2) {
  const TempFolder folder;
  a.Write(folder / "a");
  b.Write(folder / "b");
  Progress progress;
  return Value(Diff({.a = folder / "a", .b = folder / "b", .module = "", .jobs = jobs}, progress));
}

void RequireVerdict(const ModuleDiff& diff, DiffVerdict verdict) {
  CHECK(DiffVerdictName(diff.verdict) == DiffVerdictName(verdict));
}

TEST_CASE("a checkpoint is identical to itself") {
  const DiffReport report = RunDiff(SymmetricExample(), SymmetricExample());
  CHECK(report.Same());
  REQUIRE(report.modules.size() == 1);
  RequireVerdict(report.modules[0], DiffVerdict::kIdentical);
  CHECK(report.modules[0].differences.elements == 64);
  REQUIRE(report.tensors.size() == 1);
  CHECK(report.tensors[0].tensor == "model.norm.weight");
}

TEST_CASE("one code makes a module different, and is shown") {
  TestCheckpoint b = SymmetricExample();
  // Row 1, inputs 2 and 3: codes 13 and 12 become 13 and 10; scale 1.
  b.At(kExampleModule + ".weight_packed").bytes[9] = std::byte{0xAD};
  const DiffReport report = RunDiff(SymmetricExample(), b);
  CHECK_FALSE(report.Same());
  const ModuleDiff& diff = report.modules[0];
  RequireVerdict(diff, DiffVerdict::kDifferent);
  CHECK(diff.differences.unequal == 1);
  CHECK(diff.differences.max_absolute == 2);
  CHECK(diff.differences.max_relative == 0.5);
  REQUIRE(diff.differences.worst.size() == 1);
  const WorstElement& worst = diff.differences.worst[0];
  CHECK(worst.n == 1);
  CHECK(worst.k == 3);
  CHECK(worst.a.value == 4);
  CHECK(worst.b.value == 2);
  CHECK(worst.a.stored->code == 12);
  CHECK(worst.b.stored->code == 10);
  CHECK(worst.b.stored->zero_point == 8);
  CHECK(worst.b.stored->step == 2);
  CHECK(worst.b.stored->scale == 1);
}

TEST_CASE("steps count, not codes: shifted codes with shifted zero points are identical") {
  TestCheckpoint a = SymmetricExample();
  TestCheckpoint b = AsymmetricExample();
  // Rows 2 and 3 of b: codes one lower, zero points one lower. Only row 3 can go lower.
  auto& codes = b.At(kExampleModule + ".weight_packed").bytes;
  std::fill(codes.begin() + 24, codes.end(), std::byte{0x77});
  // Stored with an offset of 8: zero points 8 8, 8 8, 8 8, 7 7.
  b.At(kExampleModule + ".weight_zero_point").bytes = Hex("88 78 00 00 88 78 00 00");
  const DiffReport report = RunDiff(a, b);
  RequireVerdict(report.modules[0], DiffVerdict::kIdentical);
  CHECK(report.modules[0].a->description != report.modules[0].b->description);
}

TEST_CASE("a scale that was rounded once is equal, one that was rounded twice is not") {
  TestCheckpoint b = SymmetricExample();
  auto& scales = b.At(kExampleModule + ".weight_scale").bytes;
  scales[4] = std::byte{0x81};  // 1 becomes 1 + 2^-7: relative to the larger, just below 2^-7
  DiffReport report = RunDiff(SymmetricExample(), b);
  RequireVerdict(report.modules[0], DiffVerdict::kDifferent);
  CHECK(report.modules[0].differences.unequal == 7);  // of a group of 8, one weight is 0

  // In f32, 1 + 2^-9 is what a bf16 scale of 1 could have been.
  TestCheckpoint wide = SymmetricExample();
  TestTensor& scale = wide.At(kExampleModule + ".weight_scale");
  scale.dtype = "F32";
  scale.bytes =
      Hex("00 00 00 3f 00 00 80 3e 00 40 80 3f 00 00 00 40"
          "00 00 00 3e 00 00 80 3d 00 00 c0 3f 00 00 40 40");
  report = RunDiff(SymmetricExample(), wide);
  RequireVerdict(report.modules[0], DiffVerdict::kEqual);
  CHECK(report.Same());
  CHECK(report.modules[0].differences.max_relative < 0x1p-8);
}

TEST_CASE("against a float module the noise is measured") {
  TestCheckpoint baseline;
  const TestCheckpoint quantized = WideExample(2, &baseline);
  const DiffReport report = RunDiff(quantized, baseline);
  REQUIRE(report.modules.size() == 2);
  CHECK(report.format_b.empty());
  CHECK(report.tensors.empty());
  RequireVerdict(report.modules[0], DiffVerdict::kDifferent);
  CHECK(*report.modules[0].differences.SqnrDb() > 19.5);
  CHECK(*report.modules[0].differences.SqnrDb() < 21.5);
  CHECK_FALSE(report.modules[0].differences.worst[0].b.stored.has_value());
}

TEST_CASE("worst elements and figures do not depend on the number of threads") {
  TestCheckpoint baseline;
  const TestCheckpoint quantized = WideExample(3, &baseline);
  const DiffReport one = RunDiff(quantized, baseline, 1);
  const DiffReport seven = RunDiff(quantized, baseline, 7);
  for (size_t i = 0; i < 3; ++i) {
    const WeightDifferences& left = one.modules[i].differences;
    const WeightDifferences& right = seven.modules[i].differences;
    CHECK(left.noise == right.noise);
    REQUIRE(left.worst.size() == kWorstElements);
    for (size_t j = 0; j < kWorstElements; ++j) {
      CHECK(left.worst[j].n == right.worst[j].n);
      CHECK(left.worst[j].k == right.worst[j].k);
    }
    CHECK(left.max_absolute ==
          std::abs(static_cast<double>(left.worst[0].a.value) - left.worst[0].b.value));
  }
}

TEST_CASE("other tensors are compared by bytes, or by values across dtypes") {
  TestCheckpoint b = SymmetricExample();
  b.At("model.norm.weight").dtype = "F32";
  b.At("model.norm.weight").bytes = Hex("00 00 80 3f 00 00 80 3f");
  DiffReport report = RunDiff(SymmetricExample(), b);
  CHECK(report.Same());
  b.At("model.norm.weight").bytes[1] = std::byte{1};
  report = RunDiff(SymmetricExample(), b);
  CHECK_FALSE(report.Same());
  CHECK(report.tensors[0].differences.elements == 1);
  b.Remove("model.norm.weight");
  b.tensors.push_back({"extra", "U8", {1}, Hex("00")});
  report = RunDiff(SymmetricExample(), b);
  REQUIRE(report.tensors.size() == 2);
  CHECK(report.tensors[0].differences.verdict == DiffVerdict::kOnlyInB);
  CHECK(report.tensors[1].differences.verdict == DiffVerdict::kOnlyInA);
}

TEST_CASE("modules on one side and of other shapes are told") {
  const DiffReport missing = RunDiff(WideExample(2), WideExample(1));
  REQUIRE(missing.modules.size() == 2);
  RequireVerdict(missing.modules[1], DiffVerdict::kOnlyInA);
  TestCheckpoint renamed = WideExample(1);
  for (TestTensor& tensor : renamed.tensors) {
    tensor.name = kExampleModule + tensor.name.substr(tensor.name.rfind('.'));
  }
  const DiffReport shapes = RunDiff(SymmetricExample(), renamed);
  RequireVerdict(shapes.modules[0], DiffVerdict::kShapeDiffers);
  CHECK_FALSE(shapes.Same());
}

TEST_CASE("a packed folder and an unknown module are refused") {
  const TempFolder folder;
  SymmetricExample().Write(folder / "a");
  Progress progress;
  CheckError(
      Diff({.a = folder / "a", .b = folder / "a", .module = "model.layers.0.mlp.up_prj", .jobs = 1},
           progress)
          .status(),
      ErrorKind::kUsage, "Did you mean model.layers.0.mlp.up_proj?");
  std::ofstream(folder / "a" / "prepack.json") << "{}";
  CheckError(
      Diff({.a = folder / "a", .b = folder / "a", .module = "", .jobs = 1}, progress).status(),
      ErrorKind::kUnsupported, "prepack verify");
}

TEST_CASE("two checkpoints without a tensor have nothing to compare") {
  const TempFolder folder;
  TestCheckpoint().Write(folder / "a");
  Progress progress;
  CheckError(
      Diff({.a = folder / "a", .b = folder / "a", .module = "", .jobs = 1}, progress).status(),
      ErrorKind::kUsage, "there is nothing to compare");
}

// One set of FP8 numbers [3, 5] with a scale for each channel, as four writers store it.
std::vector<TestCheckpoint> DialectsOfFp8() {
  const std::string module = "model.layers.0.mlp.up_proj";
  TestCheckpoint stored = ModelOptFp8();
  stored.Remove(module + ".input_scale");
  stored.config["quantization_config"]["quant_algo"] = "FP8_PER_CHANNEL_PER_TOKEN";
  TestTensor& scale = stored.At(module + ".weight_scale");
  scale.shape = {3};
  scale.bytes = Floats32({0.5F, 3, 7});
  TestTensor& codes = stored.At(module + ".weight");
  for (size_t i = 0; i < codes.bytes.size(); ++i) codes.bytes[i] = static_cast<std::byte>(17 * i);

  TestCheckpoint quark = stored;
  quark.config = QuarkFp8().config;
  Json& spec = quark.config["quantization_config"]["global_quant_config"];
  spec["weight"]["qscheme"] = "per_channel";
  spec["input_tensors"] = nullptr;

  TestCheckpoint fbgemm = stored;
  fbgemm.config["quantization_config"] = {{"quant_method", "fbgemm_fp8"}};
  fbgemm.At(module + ".weight_scale").shape = {3, 1};

  TestCheckpoint ct = fbgemm;
  ct.config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "float-quantized"},
      {"quantization_status", "compressed"},
      {"ignore", {"lm_head"}},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}},
          {"weights",
           {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}, {"symmetric", true}}}}}}}};
  return {stored, quark, fbgemm, ct};
}

TEST_CASE("the same FP8 weights are identical whichever writer stored them") {
  const std::vector<TestCheckpoint> all = DialectsOfFp8();
  for (const TestCheckpoint& a : all) {
    for (TestCheckpoint b : all) {
      DiffReport report = RunDiff(a, b);
      CHECK(report.Same());
      REQUIRE(report.modules.size() == 1);
      RequireVerdict(report.modules[0], DiffVerdict::kIdentical);
      CHECK(report.modules[0].differences.elements == 15);
      b.At("model.layers.0.mlp.up_proj.weight_scale").bytes = Floats32({0.5F, 3, 6});
      report = RunDiff(a, b);
      RequireVerdict(report.modules[0], DiffVerdict::kDifferent);
      CHECK(report.modules[0].differences.unequal == 5);
    }
  }
}

TEST_CASE("the same FP4 weights are identical whichever writer stored them") {
  for (const auto& [a, b] : {std::pair{CtMxfp4(), QuarkMxfp4()},
                             {CtNvfp4(), ModelOptNvfp4()},
                             {CtNvfp4(), QuarkNvfp4()}}) {
    TestCheckpoint other = b;
    DiffReport report = RunDiff(a, other);
    CHECK(report.Same());
    REQUIRE(report.modules.size() == 1);
    RequireVerdict(report.modules[0], DiffVerdict::kIdentical);
    CHECK(report.modules[0].differences.elements == 64);
    other.At("model.layers.0.mlp.up_proj.weight").bytes[16] = std::byte{0x23};
    report = RunDiff(a, other);
    RequireVerdict(report.modules[0], DiffVerdict::kDifferent);
    CHECK(report.modules[0].differences.unequal == 1);
  }
}

TEST_CASE("NVFP4 is equal where one global scale is the rounded reciprocal of the other") {
  for (const float divisor : {3.0F, 777.7F, 1000.0F, 2688.0F / 1.7F}) {
    CAPTURE(divisor);
    TestCheckpoint ct = CtNvfp4();
    ct.At("model.layers.0.mlp.up_proj.weight_global_scale").bytes = Floats32({divisor});
    TestCheckpoint modelopt = ModelOptNvfp4();
    modelopt.At("model.layers.0.mlp.up_proj.weight_scale_2").bytes = Floats32({1 / divisor});
    // All scales that are numbers.
    for (uint8_t first = 1; first < 124; first += 4) {
      for (TestCheckpoint* stored : {&ct, &modelopt}) {
        for (uint8_t i = 0; i < 4; ++i) {
          stored->At("model.layers.0.mlp.up_proj.weight_scale").bytes[i] = std::byte(first + i);
        }
      }
      CHECK(RunDiff(ct, modelopt).Same());
    }
    modelopt.At("model.layers.0.mlp.up_proj.weight_scale_2").bytes =
        Floats32({1.000002F / divisor});
    CHECK_FALSE(RunDiff(ct, modelopt).Same());
  }
}

TEST_CASE("MXFP8 of two writers is identical") {
  const DiffReport report = RunDiff(CtMxfp8(), MinimaxMxfp8());
  CHECK(report.Same());
  REQUIRE(report.modules.size() == 1);
  RequireVerdict(report.modules[0], DiffVerdict::kIdentical);
}

TEST_CASE("stacked MXFP4 experts match by name; those of one module each do not") {
  const std::string stem = "model.layers.0.mlp.experts.gate_up_proj";
  const TestCheckpoint gpt_oss = GptOssMxfp4();
  TestCheckpoint ct = CtMxfp4();
  ct.tensors = gpt_oss.tensors;
  ct.At(stem + "_blocks").shape = {2, 2, 16};
  ct.At(stem + "_blocks").name = stem + ".weight_packed";
  ct.At(stem + "_scales").name = stem + ".weight_scale";
  const DiffReport report = RunDiff(gpt_oss, ct);
  REQUIRE(report.modules.size() == 2);
  for (const ModuleDiff& diff : report.modules) RequireVerdict(diff, DiffVerdict::kIdentical);
  CHECK(report.Same());
  // Other names, and rows of gate and up that are not by turns: nothing says which belong together.
  TestCheckpoint split = CtMxfp4();
  for (TestTensor& tensor : split.tensors) {
    if (tensor.name.starts_with(kFp8Module)) {
      tensor.name.replace(0, kFp8Module.size(), "model.layers.0.mlp.experts.0.gate_proj");
    }
  }
  const DiffReport other = RunDiff(gpt_oss, split);
  REQUIRE(other.modules.size() == 3);
  RequireVerdict(other.modules[0], DiffVerdict::kOnlyInB);
  RequireVerdict(other.modules[1], DiffVerdict::kOnlyInA);
}

TEST_CASE("stacked FP8 experts are identical whichever way their matrices lie") {
  TestCheckpoint transposed = Fp8ExpertsTransposed();
  const DiffReport report = RunDiff(Fp8Experts(), transposed);
  CHECK(report.Same());
  REQUIRE(report.modules.size() == 4);
  for (const ModuleDiff& diff : report.modules) RequireVerdict(diff, DiffVerdict::kIdentical);
  // Output 2, input 0 of expert 0: an eighth.
  transposed.At("model.layers.0.mlp.experts.gate_up_proj").bytes[2] = std::byte{0x20};
  const DiffReport other = RunDiff(Fp8Experts(), transposed);
  REQUIRE(other.modules[2].module == "model.layers.0.mlp.experts.gate_up_proj.0");
  REQUIRE(other.modules[2].differences.worst.size() == 1);
  CHECK(other.modules[2].differences.worst[0].n == 2);
  CHECK(other.modules[2].differences.worst[0].k == 0);
}

}  // namespace
}  // namespace prepack::testing
