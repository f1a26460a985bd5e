// Quark's FP8, and FBGEMM's.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/fp8_example.h"
#include "formats/read_helpers.h"
#include "formats/truth.h"
#include "prepack/formats/readers.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

Json& QuarkConfigOf(TestCheckpoint& stored) {
  return stored.config["quantization_config"];
}

Json& QuarkWeightOf(TestCheckpoint& stored) {
  return QuarkConfigOf(stored)["global_quant_config"]["weight"];
}

Json& QuarkInputOf(TestCheckpoint& stored) {
  return QuarkConfigOf(stored)["global_quant_config"]["input_tensors"];
}

// A scale for each channel, and activations per token.
TestCheckpoint QuarkChannels() {
  TestCheckpoint stored = QuarkFp8();
  QuarkWeightOf(stored)["qscheme"] = "per_channel";
  QuarkWeightOf(stored)["ch_axis"] = 0;
  QuarkInputOf(stored) = {
      {"dtype", "fp8_e4m3"}, {"qscheme", "per_channel"}, {"ch_axis", 1}, {"is_dynamic", true}};
  stored.Remove(kFp8Module + ".input_scale");
  stored.At(kFp8Module + ".weight_scale").shape = {3};
  stored.At(kFp8Module + ".weight_scale").bytes = Floats32({1, 2, 3});
  return stored;
}

TestCheckpoint Fbgemm() {
  TestCheckpoint stored = QuarkChannels();
  stored.config["quantization_config"] = {{"quant_method", "fbgemm_fp8"},
                                          {"activation_scale_ub", 1200.0},
                                          {"modules_to_not_convert", {"lm_head"}}};
  stored.At(kFp8Module + ".weight_scale").shape = {3, 1};
  return stored;
}

Scheme QuarkSchemeOf(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  const OpenedModel opened = MustOpen(folder.path());
  CHECK(opened.model.findings.empty());
  return opened.Module(kFp8Module).scheme();
}

TEST_CASE("Quark's specifications of weights and activations") {
  CHECK(DescribeScheme(QuarkSchemeOf(QuarkFp8())) == "wfp8afp8 tensor");
  const Scheme channels = QuarkSchemeOf(QuarkChannels());
  CHECK(DescribeScheme(channels) == "wfp8afp8 channel");
  CHECK(DescribeActivations(channels.activations) == "8-bit float per token dynamic");
  TestCheckpoint stored = QuarkFp8();
  stored.Remove(kFp8Module + ".input_scale");
  QuarkInputOf(stored)["is_dynamic"] = true;
  CHECK(DescribeActivations(QuarkSchemeOf(stored).activations) == "8-bit float per tensor dynamic");
  QuarkInputOf(stored) = nullptr;
  CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8a16 tensor");
}

TEST_CASE("the first pattern of Quark's layers counts, then the class, then all") {
  const Json channels = QuarkChannels().config["quantization_config"]["global_quant_config"];
  const Json none = {{"weight", nullptr}};
  TestCheckpoint stored = QuarkChannels();
  QuarkConfigOf(stored)["global_quant_config"] = none;
  QuarkConfigOf(stored)["layer_type_quant_config"] = {{"nn.Embedding", none},
                                                      {"nn.Linear", channels}};
  CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8afp8 channel");
  QuarkConfigOf(stored)["layer_type_quant_config"] = {{"nn.Linear", none}};
  QuarkConfigOf(stored)["layer_quant_config"] = {
      {"*down*", none}, {"*.mlp.*_proj", channels}, {"*", none}};
  CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8afp8 channel");
}

TEST_CASE("Quark's exclude takes names, wildcards and expressions") {
  for (const std::string entry : {"*.up_proj", "re:.*up_proj", "model.layers.0.mlp.up_proj"}) {
    TestCheckpoint stored = QuarkFp8();
    QuarkConfigOf(stored)["exclude"] = {entry};
    const std::vector<Finding> findings = FindingsOf(stored);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].id == "module-ignored-but-quantized");
  }
  TestCheckpoint stored = QuarkFp8();
  AddZeros(stored, "model.layers.0.mlp.gate_proj.weight", "BF16", {3, 5}, 30);
  CHECK(HasFinding(FindingsOf(stored), "module-targeted-but-plain",
                   "the config does not exclude the module, but it is not quantized"));
  QuarkConfigOf(stored)["exclude"] = {"re:.*gate"};
  CHECK_FALSE(HasFinding(FindingsOf(stored), "module-targeted-but-plain", ""));
}

TEST_CASE("copies of Quark's config that disagree are refused") {
  TestCheckpoint stored = QuarkFp8();
  stored.config["text_config"] = {{"quantization_config", QuarkConfigOf(stored)}};
  RequireOk(ReadEverything(stored));
  Json& copy = stored.config["text_config"]["quantization_config"];
  copy["layer_quant_config"] = {{"*", {{"weight", nullptr}}}};
  const Status status = ReadEverything(stored);
  CheckError(status, ErrorKind::kMalformed,
             "text_config.quantization_config.layer_quant_config: two copies of the quantization "
             "config disagree");
  CHECK(status.id() == "config-conflict");
}

TEST_CASE("FBGEMM's FP8 has a scale for each channel, and activations per token") {
  const Scheme scheme = QuarkSchemeOf(Fbgemm());
  CHECK(DescribeScheme(scheme) == "wfp8afp8 channel");
  CHECK(DescribeActivations(scheme.activations) == "8-bit float per token dynamic");
  TestCheckpoint stored = Fbgemm();
  QuarkConfigOf(stored)["modules_to_not_convert"] = {kFp8Module};
  CHECK(FindingsOf(stored)[0].id == "module-ignored-but-quantized");
}

TEST_CASE("what is wrong with a checkpoint of Quark or FBGEMM is said") {
  using T = TestCheckpoint&;
  const auto malformed = ErrorKind::kMalformed;
  const auto unsupported = ErrorKind::kUnsupported;
  const std::vector<FormatDefect> defects = {
      {"MXFP4", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t) = {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"scale_format", "e8m0"}};
       },
       unsupported, "scheme-unsupported",
       "mlp.up_proj: Quark's MXFP4 weights are not supported (expected int4, uint4, int8 or uint8; "
       "fp8_e4m3 per_tensor or per_channel; MXFP4 or NVFP4)"},
      {"AMDFP4", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t) = {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"scale_format", "e5m3"}};
       },
       unsupported, "scheme-unsupported",
       "Quark's AMDFP4 (scales in e5m3) weights are not supported"},
      {"NVFP4", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t) = Json::array({{{"dtype", "fp4"}}, {{"dtype", "fp8_e4m3"}}});
       },
       unsupported, "scheme-unsupported",
       "Quark's twice quantized (fp4, then fp8_e4m3) weights are not supported"},
      {"int4 of FP8", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t) = Json::array({{{"dtype", "fp8_e4m3"}}, {{"dtype", "int4"}}});
       },
       unsupported, "scheme-unsupported",
       "Quark's twice quantized (fp8_e4m3, then int4) weights are not supported"},
      {"MXFP6", QuarkFp8, [](T t) { QuarkWeightOf(t)["dtype"] = "fp6_e2m3"; }, unsupported,
       "scheme-unsupported", "Quark's MXFP6 weights are not supported"},
      {"MXFP8", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t)["qscheme"] = "per_group";
         QuarkWeightOf(t)["scale_format"] = "e8m0";
       },
       unsupported, "scheme-unsupported", "Quark's MXFP8 weights are not supported"},
      {"integers of 3 bits", QuarkFp8, [](T t) { QuarkWeightOf(t)["dtype"] = "int3"; }, unsupported,
       "scheme-unsupported", "Quark's int3 per_tensor weights are not supported"},
      {"MX6", QuarkFp8, [](T t) { QuarkWeightOf(t)["dtype"] = "mx6"; }, unsupported,
       "scheme-unsupported", "Quark's OCP MX (mx6) weights are not supported"},
      {"integers with activations in FP8", QuarkFp8,
       [](T t) { QuarkWeightOf(t)["dtype"] = "int8"; }, unsupported, "scheme-unsupported",
       "input_tensors: activations of this kind are not supported with integer weights (found "
       "fp8_e4m3 per_tensor, static, expected int8 per_tensor, or dynamic per_channel with ch_axis "
       "1)"},
      {"channels that are inputs", QuarkChannels, [](T t) { QuarkWeightOf(t)["ch_axis"] = 1; },
       unsupported, "scheme-unsupported", "Quark's fp8_e4m3 per_channel weights are not supported"},
      {"activations that are not read", QuarkFp8, [](T t) { QuarkInputOf(t)["dtype"] = "int8"; },
       unsupported, "scheme-unsupported",
       "input_tensors: activations of this kind are not supported with FP8 weights (found int8 "
       "per_tensor, static"},
      {"static activations per token", QuarkChannels,
       [](T t) { QuarkInputOf(t)["is_dynamic"] = false; }, unsupported, "scheme-unsupported",
       "(found fp8_e4m3 per_channel, static"},
      {"a config that says nothing", QuarkFp8,
       [](T t) { QuarkConfigOf(t)["global_quant_config"] = nullptr; }, malformed,
       "module-without-group", "the config does not mention it"},
      {"a config that is none", QuarkFp8, [](T t) { QuarkConfigOf(t)["global_quant_config"] = 7; },
       malformed, "config-field-invalid", "global_quant_config: the field has the wrong type"},
      {"a weight that is none", QuarkFp8, [](T t) { QuarkWeightOf(t) = "fp8"; }, malformed,
       "config-field-invalid", "weight: the field has the wrong type"},
      {"activations that are none", QuarkFp8, [](T t) { QuarkInputOf(t) = "fp8"; }, malformed,
       "config-field-invalid", "input_tensors: the field has the wrong type"},
      {"rules that are none", QuarkFp8, [](T t) { QuarkConfigOf(t)["layer_quant_config"] = {1}; },
       malformed, "config-field-invalid", "layer_quant_config: the field has the wrong type"},
      {"too many rules", QuarkFp8,
       [](T t) {
         for (int i = 0; i < 4097; ++i) {
           QuarkConfigOf(t)["layer_quant_config"]["a" + std::to_string(i)] = Json::object();
         }
       },
       unsupported, "config-too-large", "layer_quant_config: too many rules (found 4097"},
      {"a class whose rule is none", QuarkFp8,
       [](T t) {
         QuarkConfigOf(t)["layer_type_quant_config"] = {{"Linear", 1}};
       },
       malformed, "config-field-invalid",
       "layer_type_quant_config.Linear: the field has the wrong type"},
      {"an exclude that is none", QuarkFp8, [](T t) { QuarkConfigOf(t)["exclude"] = "lm_head"; },
       malformed, "config-field-invalid", "exclude: the field has the wrong type"},
      {"an expression that does not compile", QuarkFp8,
       [](T t) { QuarkConfigOf(t)["exclude"] = {"re:("}; }, malformed, "config-pattern-invalid",
       "exclude"},
      {"weights that were not quantized", QuarkFp8,
       [](T t) { QuarkConfigOf(t)["export"]["weight_format"] = "fake_quantized"; }, unsupported,
       "weight-fake-quantized", "the weights are stored in floating point, not quantized"},
      {"an export that is none", QuarkFp8, [](T t) { QuarkConfigOf(t)["export"] = 1; }, malformed,
       "config-field-invalid", "export: the field has the wrong type"},
      {"no scale", QuarkFp8, [](T t) { t.Remove(kFp8Module + ".weight_scale"); }, malformed,
       "tensor-missing", "the scale of the FP8 weight is missing"},
      {"another number of scales", QuarkChannels,
       [](T t) {
         t.At(kFp8Module + ".weight_scale").shape = {};
         t.At(kFp8Module + ".weight_scale").bytes.resize(4);
       },
       malformed, "tensor-shape", "the shape of the scales contradicts the weight"},
      {"bytes of another kind", QuarkFp8, [](T t) { t.At(kFp8Module + ".weight").dtype = "U8"; },
       unsupported, "storage-unsupported", "FP8 weights of this type are not supported (found U8"},
      {"a scale that is infinite", QuarkFp8,
       [](T t) { t.At(kFp8Module + ".weight_scale").bytes = Hex("00 00 80 7f"); }, malformed,
       "scale-not-finite", "is not a finite number (found infinity"},
      {"no scale of activations", QuarkFp8, [](T t) { t.Remove(kFp8Module + ".input_scale"); },
       malformed, "input-missing", "input_scale is missing"},
      {"nothing quantized", QuarkFp8,
       [](T t) { t.tensors.erase(t.tensors.begin(), t.tensors.begin() + 3); }, malformed,
       "nothing-quantized", "the config declares quantized weights, but no tensor is one"},
      {"FBGEMM without a scale", Fbgemm, [](T t) { t.Remove(kFp8Module + ".weight_scale"); },
       malformed, "tensor-missing", "the scale of the FP8 weight is missing"},
      {"a list of FBGEMM that is none", Fbgemm,
       [](T t) { QuarkConfigOf(t)["modules_to_not_convert"] = 1; }, malformed,
       "config-field-invalid", "modules_to_not_convert: the field has the wrong type"},
      {"FBGEMM's scales of inputs", Fbgemm,
       [](T t) {
         t.At(kFp8Module + ".weight_scale").shape = {5, 1};
         t.At(kFp8Module + ".weight_scale").bytes.resize(20);
       },
       malformed, "tensor-shape", "the shape of the scales contradicts the weight (found [5, 1]"},
  };
  CheckDefects(defects);
}

TEST_CASE("Quark's integers dequantize to the truth, to the bit") {
  CheckTruth("quark-uint4", "quark", 7, "w4a16 group 32 asymmetric");
  CheckTruth("quark-int4-order", "quark", 7);
  CheckTruth("quark-int8-dynamic", "quark", 7, "w8a8 channel symmetric");
  const OpenedModel fixed = CheckTruth("quark-int8", "quark", 7, "w8a8 tensor symmetric");
  CHECK(fixed.model.modules.front()->input().has_value());
  CHECK(fixed.model.findings.empty());
  const OpenedModel all = CheckTruth("quark-integers", "quark", 7);
  const std::vector<std::pair<std::string, std::string>> schemes = {
      {"self_attn.q_proj", "w4a16 channel symmetric"},
      {"self_attn.k_proj", "w8a16 channel asymmetric"},
      {"self_attn.v_proj", "w8a16 group 32 symmetric"},
      {"self_attn.o_proj", "w8a16 channel asymmetric"},
      {"mlp.gate_proj", "w8a16 channel asymmetric"},
      {"mlp.up_proj", "w4a16 channel asymmetric"},
      {"mlp.down_proj", "w8a16 group 64 asymmetric"}};
  for (const auto& [module, scheme] : schemes) {
    CHECK(DescribeScheme(all.Module("model.layers.0." + module).scheme()) == scheme);
  }
  const OpenedModel mixed = CheckTruth("quark-fp8-int4", "quark", 7);
  CHECK(DescribeScheme(mixed.Module("model.layers.0.mlp.up_proj").scheme()) ==
        "w4a16 group 32 symmetric");
  CHECK(DescribeScheme(mixed.Module("model.layers.0.self_attn.q_proj").scheme()) ==
        "wfp8afp8 tensor");
}

}  // namespace
}  // namespace prepack::testing
