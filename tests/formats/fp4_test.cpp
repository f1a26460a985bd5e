// MXFP4, NVFP4 and MXFP8 in all dialects.

#include "formats/fp4_example.h"

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/truth.h"
#include "prepack/base/float_convert.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

const std::string kStack = "model.layers.0.mlp.experts.gate_up_proj";
const std::vector<float> kNumbers = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                     -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

// Row 0 of the examples, with these scales of its two halves.
std::vector<float> Scaled(float first, float second) {
  std::vector<float> row;
  for (const float scale : {first, second}) {
    for (const float number : kNumbers) row.push_back(number * scale);
  }
  return row;
}

TEST_CASE("FP4 numbers, of both signs") {
  for (uint8_t code = 0; code < 16; ++code) {
    CAPTURE(int{code});
    CHECK(std::bit_cast<uint32_t>(F4E2M1ToF32(code)) == std::bit_cast<uint32_t>(kNumbers[code]));
    CHECK(std::bit_cast<uint32_t>(CodeValues(CodeType::kF4E2M1)[code]) ==
          std::bit_cast<uint32_t>(kNumbers[code]));
  }
}

TEST_CASE("MXFP4 of all dialects") {
  for (const TestCheckpoint& stored : {CtMxfp4(), QuarkMxfp4(), GptOssMxfp4()}) {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(opened.model.findings.empty());
    const QuantizedLinear& linear = *opened.model.modules[0];
    CHECK(linear.n() == 2);
    CHECK(linear.k() == 32);
    CHECK(CodeTypeName(linear.scheme().code) == "f4e2m1");
    CHECK(DescribeScheme(WithoutN(linear.scheme())).ends_with(" group 32"));
    CHECK(Codes(linear) == Fp4Codes());
    CHECK(Scales(linear, 0, 2) == std::vector<float>{1, 2});
    CHECK(DifferentBits(Dequantize(linear, 0, 1), Scaled(1, 1)) == 0);
    CHECK(Dequantize(linear, 1, 1) == std::vector<float>(32, 2));
  }
}

TEST_CASE("experts of gpt-oss are modules, and rows are as they are stored") {
  const TempFolder folder;
  GptOssMxfp4().Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.format == "mxfp4");
  REQUIRE(opened.model.modules.size() == 2);
  const QuantizedLinear& second = opened.Module(kStack + ".1");
  CHECK(SchemeName(second.scheme()) == "wfp4a16");
  CHECK(Scales(second, 0, 2) == std::vector<float>{4, 8});
  CHECK(second.source_bytes() == 32 + 2);
  CHECK(second.source_tensors() ==
        std::vector<std::string_view>{kStack + "_blocks", kStack + "_scales"});
}

TEST_CASE("NVFP4: the global scale divides or multiplies, as the dialect says") {
  for (const TestCheckpoint& stored : {CtNvfp4(), ModelOptNvfp4(), QuarkNvfp4()}) {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(opened.model.findings.empty());
    const QuantizedLinear& linear = opened.Module(kFp8Module);
    CHECK(DescribeScheme(linear.scheme()).ends_with(" group 16"));
    CHECK(Scales(linear, 0, 2) == std::vector<float>{0.5F, 1, 0.25F, 0.5625F});
    CHECK(DifferentBits(Dequantize(linear, 0, 1), Scaled(0.5F, 1)) == 0);
    CHECK(linear.stored_scale_dtype() == DType::kF32);
  }
}

TEST_CASE("stacked experts in NVFP4 by ModelOpt have their inputs first") {
  const TempFolder folder;
  ModelOptNvfp4Stack().Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.findings.empty());
  REQUIRE(opened.model.modules.size() == 2);
  const QuantizedLinear& first = opened.Module(kStack + ".0");
  CHECK(first.n() == 2);
  CHECK(first.k() == 32);
  CHECK(DescribeScheme(first.scheme()) == "wfp4afp4 group 16");
  CHECK(Codes(first) == Fp4Codes());
  CHECK(Scales(first, 0, 2) == std::vector<float>{0.5F, 1, 0.25F, 0.5625F});
  CHECK(Scales(first, 1, 1) == std::vector<float>{0.25F, 0.5625F});
  CHECK(first.stored_scale_dtype() == DType::kF32);
  CHECK(first.source_tensors().size() == 4);
  const QuantizedLinear& second = opened.Module(kStack + ".1");
  CHECK(Dequantize(second, 1, 1) == std::vector<float>(32, 1));
  REQUIRE(second.stacked_bias() != nullptr);
  CHECK(second.stacked_bias()->tensor == kStack + "_bias");
  CHECK(second.stacked_bias()->row == 1);
  std::vector<std::byte> part(4);
  RequireOk(first.ReadCodes({.n0 = 1, .rows = 1, .k0 = 24, .cols = 8}, part));
  CHECK(part == Hex("22 22 22 22"));
}

TEST_CASE("what is wrong with stacked experts in NVFP4 is said") {
  using T = TestCheckpoint&;
  CheckDefects({
      {"no scale", ModelOptNvfp4Stack, [](T t) { t.Remove(kStack + "_weight_scale"); }, kMalformed,
       "tensor-missing", "a scale of the FP4 weight is missing"},
      {"outputs first", ModelOptNvfp4Stack,
       [](T t) {
         t.At(kStack).shape = {2, 2, 16};
         t.At(kStack + "_weight_scale").shape = {2, 2, 2};
       },
       kMalformed, "tensor-shape", "(found [2, 2, 2], expected [2, 0, 16]"},
      {"scales in F32", ModelOptNvfp4Stack,
       [](T t) {
         t.At(kStack + "_weight_scale").dtype = "F32";
         t.At(kStack + "_weight_scale").bytes.resize(32);
       },
       kMalformed, "tensor-dtype", "_weight_scale"},
      {"part of a group", ModelOptNvfp4Stack,
       [](T t) {
         t.At(kStack).shape = {2, 17, 2};
         t.At(kStack).bytes.resize(68);
       },
       kMalformed, "group-size-mismatch", "K = 34, group size 16"},
      {"a global scale of zero", ModelOptNvfp4Stack,
       [](T t) { t.At(kStack + "_weight_scale_2").bytes = Floats32({0}); }, kMalformed,
       "global-scale-invalid", "the global scale is not a positive number (found 0"},
      {"a scale that is NaN", ModelOptNvfp4Stack,
       [](T t) { t.At(kStack + "_weight_scale").bytes[1] = std::byte{0x7F}; }, kMalformed,
       "scale-not-finite", "the scale of channel 1, group 0 is not a finite number (found NaN"},
      {"a bias of another size", ModelOptNvfp4Stack,
       [](T t) {
         t.At(kStack + "_bias").shape = {4, 1};
       },
       kMalformed, "tensor-shape", "_bias: the tensor has the wrong shape"},
      {"no experts", ModelOptNvfp4Stack,
       [](T t) {
         t.At(kStack).shape = {0, 16, 2};
         t.At(kStack).bytes.clear();
       },
       kMalformed, "tensor-shape", "the weight is empty"},
      {"MXFP4", ModelOptNvfp4Stack,
       [](T t) {
         t.config["quantization_config"]["quant_algo"] = "MXFP4";
         t.config["quantization_config"].erase("group_size");
       },
       kUnsupported, "storage-unsupported", "quantized experts stacked in one tensor"},
  });
  TestCheckpoint excluded = ModelOptNvfp4Stack();
  excluded.config["quantization_config"]["ignore"] = {"*.mlp.experts*"};
  const TempFolder folder;
  excluded.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  REQUIRE(opened.model.findings.size() == 1);
  CHECK(opened.model.findings[0].id == "module-ignored-but-quantized");
}

TEST_CASE("NVFP4: the scale is the quotient or the product, rounded once to f32") {
  TestCheckpoint ct = CtNvfp4();
  ct.At(kFp8Module + ".weight_global_scale").bytes = Floats32({3});
  TestCheckpoint modelopt = ModelOptNvfp4();
  modelopt.At(kFp8Module + ".weight_scale_2").bytes = Floats32({0.1F});
  for (const auto& [stored, scale] : {std::pair{ct, 1.125F / 3.0F}, {modelopt, 1.125F * 0.1F}}) {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    const std::vector<float> scales = Scales(opened.Module(kFp8Module), 1, 1);
    CHECK(std::bit_cast<uint32_t>(scales[1]) == std::bit_cast<uint32_t>(scale));
  }
}

TEST_CASE("MXFP8: FP8 codes with exponents per group") {
  TestCheckpoint modelopt = CtMxfp8();
  modelopt.config = ModelOptFp8().config;
  modelopt.config["quantization_config"]["quant_algo"] = "MXFP8";
  for (const TestCheckpoint& stored : {CtMxfp8(), modelopt}) {
    const TempFolder folder;
    stored.Write(folder.path());
    const OpenedModel opened = MustOpen(folder.path());
    CHECK(opened.model.findings.empty());
    const QuantizedLinear& linear = opened.Module(kFp8Module);
    CHECK(DescribeScheme(linear.scheme()).ends_with(" group 32"));
    CHECK(Scales(linear, 0, 2) == std::vector<float>{1, 2, 0.5F, 4});
  }
}

TEST_CASE("groups of zeros may have any scale, with zeros of both signs") {
  for (TestCheckpoint stored : {CtNvfp4(), ModelOptNvfp4()}) {
    stored.At(kFp8Module + ".weight_scale").bytes[2] = std::byte{0};
    CHECK(ReadEverything(stored).id() == "scale-zero");
    TestTensor& codes = stored.tensors[0];
    for (size_t i = 16; i < 24; ++i)
      codes.bytes[i] = std::byte{i % 2 == 0 ? uint8_t{0x80} : uint8_t{0x08}};
    RequireOk(ReadEverything(stored));
    codes.bytes[23] = std::byte{0x18};
    CHECK(ReadEverything(stored).id() == "scale-zero");
  }
}

void SetInput(TestCheckpoint& stored, const Json& args) {
  stored.config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = args;
}

TEST_CASE("NVFP4 with quantized activations: below a global scale that is not used") {
  TestCheckpoint stored = CtNvfp4();
  SetInput(stored, {{"num_bits", 4},
                    {"type", "float"},
                    {"strategy", "tensor_group"},
                    {"group_size", 16},
                    {"dynamic", "local"}});
  stored.tensors.push_back({kFp8Module + ".input_global_scale", "F32", {1}, Floats32({100})});
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.findings.empty());
  const Scheme& scheme = opened.Module(kFp8Module).scheme();
  CHECK(SchemeName(scheme) == "wfp4afp4");
  CHECK(DescribeActivations(scheme.activations) == "4-bit float per group of 16 dynamic");
  CHECK(opened.Module(kFp8Module).source_tensors().size() == 4);
}

TEST_CASE("what is wrong with FP4 and MXFP8 of compressed-tensors is said") {
  using T = TestCheckpoint&;
  CheckDefects({
      {"no global scale", CtNvfp4, [](T t) { t.Remove(kFp8Module + ".weight_global_scale"); },
       kMalformed, "tensor-missing", "weight_global_scale of the module is missing"},
      {"no scale", CtNvfp4, [](T t) { t.Remove(kFp8Module + ".weight_scale"); }, kMalformed,
       "tensor-missing", "weight_scale of the module is missing"},
      {"no scale of MXFP4", CtMxfp4, [](T t) { t.Remove(kFp8Module + ".weight_scale"); },
       kMalformed, "tensor-missing", "weight_scale of the module is missing"},
      {"a global scale of MXFP4", CtMxfp4,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".weight_global_scale", "F32", {1}, Floats32({1})});
       },
       kMalformed, "module-scheme-contradiction",
       "mxfp4-pack-quantized weights have no global scale"},
      {"a global scale of MXFP8", CtMxfp8,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".weight_global_scale", "F32", {1}, Floats32({1})});
       },
       kMalformed, "module-scheme-contradiction", "mxfp8-quantized weights have no global scale"},
      {"a global scale of zero", CtNvfp4,
       [](T t) { t.At(kFp8Module + ".weight_global_scale").bytes = Floats32({0}); }, kMalformed,
       "global-scale-invalid", "the global scale is not a positive number (found 0"},
      {"a global scale that is NaN", CtNvfp4,
       [](T t) {
         t.At(kFp8Module + ".weight_global_scale").bytes =
             Floats32({std::numeric_limits<float>::quiet_NaN()});
       },
       kMalformed, "global-scale-invalid", "the global scale is not a positive number (found nan"},
      {"an infinite global scale", CtNvfp4,
       [](T t) {
         t.At(kFp8Module + ".weight_global_scale").bytes =
             Floats32({std::numeric_limits<float>::infinity()});
       },
       kMalformed, "global-scale-invalid", "the global scale is not a positive number (found inf"},
      {"two global scales", CtNvfp4,
       [](T t) {
         t.At(kFp8Module + ".weight_global_scale").shape = {2};
         t.At(kFp8Module + ".weight_global_scale").bytes = Floats32({1, 1});
       },
       kMalformed, "tensor-shape", "a module needs exactly one global scale (found [2]"},
      {"an exponent that is NaN", CtMxfp4,
       [](T t) { t.At(kFp8Module + ".weight_scale").bytes[1] = std::byte{255}; }, kMalformed,
       "scale-not-finite", "the scale of channel 1, group 0 is not a finite number (found NaN"},
      {"an FP8 scale that is NaN", CtNvfp4,
       [](T t) { t.At(kFp8Module + ".weight_scale").bytes[3] = std::byte{0x7F}; }, kMalformed,
       "scale-not-finite", "the scale of channel 1, group 1 is not a finite number (found NaN"},
      {"a quotient that is infinite", CtNvfp4,
       [](T t) { t.At(kFp8Module + ".weight_global_scale").bytes = Floats32({1e-39F}); },
       kMalformed, "scale-not-finite", "is not a finite number (found infinity"},
      {"scales of another shape", CtMxfp4,
       [](T t) {
         t.At(kFp8Module + ".weight_scale").shape = {1, 2};
       },
       kMalformed, "tensor-shape",
       "the shape of the scales contradicts the weight (found [1, 2], expected [2, 1]"},
      {"zero points", CtMxfp4,
       [](T t) {
         AddZeros(t, kFp8Module + ".weight_zero_point", "I8", {2, 1}, 2);
       },
       kMalformed, "module-scheme-contradiction", "FP4 weights have no zero points"},
      {"an order of input channels", CtMxfp4,
       [](T t) { AddZeros(t, kFp8Module + ".weight_g_idx", "I32", {32}, 128); }, kUnsupported,
       "scheme-unsupported", "act-order of FP4 weights is not supported"},
      {"integers", CtMxfp4,
       [](T t) {
         t.config = CtFloatConfig(
             "mxfp4-pack-quantized",
             {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}});
       },
       kMalformed, "module-scheme-contradiction",
       "the module is stored mxfp4-pack-quantized, but its config group says 4-bit int group 32"},
      {"groups of 16 with exponents", CtMxfp4,
       [](T t) {
         t.config = CtFloatConfig(
             "mxfp4-pack-quantized",
             {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 16}});
         t.At(kFp8Module + ".weight_scale").shape = {2, 2};
         t.At(kFp8Module + ".weight_scale").bytes = Hex("7f 7f 7f 7f");
       },
       kUnsupported, "scheme-unsupported", "mxfp4-pack-quantized with other groups"},
      {"scales in e5m3", CtNvfp4,
       [](T t) { t.config["quantization_config"]["format"] = "nvfp4-e5m3-pack-quantized"; },
       kUnsupported, "storage-unsupported", "NVFP4 with scales in e5m3 is not supported"},
      {"stacked experts", CtNvfp4,
       [](T t) {
         t.At(kFp8Module + ".weight_packed").shape = {1, 2, 16};
         t.At(kFp8Module + ".weight_scale").shape = {1, 2, 2};
       },
       kUnsupported, "storage-unsupported", "stacked experts in NVFP4 are not supported"},
      {"FP6", CtMxfp4,
       [](T t) {
         t.config = CtFloatConfig(
             "mxfp6-quantized",
             {{"num_bits", 6}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}});
       },
       kUnsupported, "scheme-unsupported", "MXFP6 weights are not supported"},
  });
}

TEST_CASE("what is wrong with the experts of gpt-oss is said") {
  using T = TestCheckpoint&;
  CheckDefects({
      {"no scales", GptOssMxfp4, [](T t) { t.Remove(kStack + "_scales"); }, kMalformed,
       "tensor-missing", "a scale of the FP4 weight is missing"},
      {"no blocks", GptOssMxfp4, [](T t) { t.Remove(kStack + "_blocks"); }, kMalformed,
       "tensor-orphan", "the weight that this tensor describes is missing"},
      {"scales of another shape", GptOssMxfp4,
       [](T t) {
         t.At(kStack + "_scales").shape = {2, 1, 2};
       },
       kMalformed, "tensor-shape",
       "the shape of the scales contradicts the weight (found [2, 1, 2], expected [2, 2, 1]"},
      {"blocks and scales transposed", GptOssMxfp4,
       [](T t) {
         t.At(kStack + "_blocks").shape = {2, 1, 2, 16};
         t.At(kStack + "_scales").shape = {2, 1, 2};
       },
       kMalformed, "tensor-shape", "_bias: the tensor has the wrong shape"},
      {"blocks of another size", GptOssMxfp4,
       [](T t) {
         t.At(kStack + "_blocks").shape = {2, 2, 2, 8};
       },
       kMalformed, "tensor-shape", "the blocks of MXFP4 have the wrong shape (found [2, 2, 2, 8]"},
      {"blocks of another type", GptOssMxfp4, [](T t) { t.At(kStack + "_blocks").dtype = "I8"; },
       kMalformed, "tensor-dtype", "_blocks"},
      {"a scale that is NaN", GptOssMxfp4,
       [](T t) { t.At(kStack + "_scales").bytes[3] = std::byte{255}; }, kMalformed,
       "scale-not-finite", "the scale of channel 1, group 0 is not a finite number (found NaN"},
      {"a list that is none", GptOssMxfp4,
       [](T t) { t.config["quantization_config"]["modules_to_not_convert"] = "lm_head"; },
       kMalformed, "config-field-invalid", "modules_to_not_convert: the field has the wrong type"},
  });
}

TEST_CASE("what is wrong with FP4 of ModelOpt and Quark is said") {
  using T = TestCheckpoint&;
  CheckDefects({
      {"no global scale", ModelOptNvfp4, [](T t) { t.Remove(kFp8Module + ".weight_scale_2"); },
       kMalformed, "tensor-missing", "expected " + kFp8Module + ".weight_scale_2"},
      {"no scale", ModelOptNvfp4,
       [](T t) { t.At(kFp8Module + ".weight_scale").name = kFp8Module + ".weight_scale_inv"; },
       kMalformed, "tensor-missing", "expected " + kFp8Module + ".weight_scale"},
      {"a negative global scale", ModelOptNvfp4,
       [](T t) { t.At(kFp8Module + ".weight_scale_2").bytes = Floats32({-1}); }, kMalformed,
       "global-scale-invalid", "the global scale is not a positive number (found -1"},
      {"FP8 codes", ModelOptNvfp4, [](T t) { t.At(kFp8Module + ".weight").dtype = "F8_E4M3"; },
       kMalformed, "module-scheme-contradiction", "the config says FP4"},
      {"stacked", ModelOptNvfp4,
       [](T t) {
         t.At(kFp8Module + ".weight").shape = {1, 2, 16};
       },
       kUnsupported, "storage-unsupported", "stacked FP4 weights are not supported yet"},
      {"part of a group", ModelOptNvfp4,
       [](T t) {
         t.At(kFp8Module + ".weight").shape = {2, 12};
         t.At(kFp8Module + ".weight").bytes.resize(24);
       },
       kMalformed, "group-size-mismatch", "K is not a multiple of the group size (found K = 24"},
      {"groups of another size", ModelOptNvfp4,
       [](T t) { t.config["quantization_config"]["group_size"] = 32; }, kUnsupported,
       "scheme-unsupported", "NVFP4 with other groups is not supported (found 32, expected 16"},
      {"a correction", ModelOptNvfp4,
       [](T t) { AddZeros(t, kFp8Module + ".pre_quant_scale", "BF16", {32}, 64); }, kUnsupported,
       "storage-unsupported", "do more than multiply"},
      {"Quark's MXFP4 under a global scale", QuarkMxfp4,
       [](T t) {
         t.tensors.push_back({kFp8Module + ".weight_scale_2", "F32", {}, Floats32({1})});
       },
       kMalformed, "module-scheme-contradiction", "MXFP4 weights have no global scale"},
      {"AMDFP4, which has the same tensors", QuarkMxfp4,
       [](T t) {
         t.config["quantization_config"]["global_quant_config"]["weight"]["scale_format"] = "e5m3";
         t.config["quantization_config"]["global_quant_config"]["weight"]["group_size"] = 16;
       },
       kUnsupported, "scheme-unsupported", "(found AMDFP4 (scales in e5m3)"},
      {"Quark's activations of another kind", QuarkMxfp4,
       [](T t) {
         t.config["quantization_config"]["global_quant_config"]["input_tensors"]["is_dynamic"] =
             false;
       },
       kUnsupported, "scheme-unsupported",
       "activations of this kind are not supported with MXFP4 weights"},
      {"NVFP4 with other activations", QuarkNvfp4,
       [](T t) {
         Json& input = t.config["quantization_config"]["global_quant_config"]["input_tensors"];
         input[0]["group_size"] = 32;
       },
       kUnsupported, "scheme-unsupported",
       "activations of this kind are not supported with NVFP4 weights"},
      {"NVFP4 with FP8 activations", QuarkNvfp4,
       [](T t) {
         Json& input = t.config["quantization_config"]["global_quant_config"]["input_tensors"];
         input = {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}};
       },
       kUnsupported, "scheme-unsupported",
       "activations of this kind are not supported with NVFP4 weights (found"},
      {"NVFP4 in other groups", QuarkNvfp4,
       [](T t) {
         t.config["quantization_config"]["global_quant_config"]["weight"][0]["group_size"] = 32;
       },
       kUnsupported, "scheme-unsupported",
       "weights that are quantized twice are not supported (found fp4 per_group and then scales in "
       "fp8_e4m3 per_tensor, expected int4"},
      {"a step that is none", QuarkNvfp4,
       [](T t) { t.config["quantization_config"]["global_quant_config"]["weight"][1] = 1; },
       kMalformed, "config-field-invalid", "global_quant_config.weight"},
      {"no global scale of Quark", QuarkNvfp4,
       [](T t) { t.Remove(kFp8Module + ".weight_scale_2"); }, kMalformed, "tensor-missing",
       "expected " + kFp8Module + ".weight_scale_2"},
  });
}

TEST_CASE("FP4 and MXFP8 by their writers dequantize to the truth, to the bit") {
  struct Case {
    std::string name;
    std::string format;
    size_t modules;
    std::string scheme;
  };
  const std::vector<Case> cases = {
      {"ct-mxfp4", "compressed-tensors", 7, "wfp4a16 group 32"},
      {"ct-kimi-k3", "compressed-tensors", 12, "wfp4a16 group 32"},
      {"ct-nvfp4", "compressed-tensors", 3, "wfp4afp4 group 16"},
      {"ct-nvfp4a16", "compressed-tensors", 7, "wfp4a16 group 16"},
      {"ct-mxfp8", "compressed-tensors", 7, "wfp8afp8 group 32"},
      {"mxfp8-minimax", "mxfp8", 13, "wfp8afp8 group 32"},
      {"gpt-oss-mxfp4", "mxfp4", 16, "wfp4a16 group 32"},
      {"modelopt-nvfp4", "modelopt", 3, "wfp4afp4 group 16"},
      {"modelopt-nvfp4-gpt-oss", "modelopt", 4, "wfp4afp4 group 16"},
      {"quark-mxfp4", "quark", 3, "wfp4afp4 group 32"},
      {"quark-nvfp4", "quark", 7, "wfp4afp4 group 16"},
      {"quark-mixed", "quark", 7, ""},
  };
  for (const Case& c : cases) {
    CHECK(CheckTruth(c.name, c.format, c.modules, c.scheme).model.findings.empty());
  }
}

}  // namespace
}  // namespace prepack::testing
