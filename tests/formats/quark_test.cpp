// Quark's FP8, and FBGEMM's.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/defects.h"
#include "formats/fp8_example.h"
#include "formats/read_helpers.h"
#include "formats/truth.h"
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

TEST_CASE("a pattern of Quark's layers counts, then the class, then all") {
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

TEST_CASE("of several patterns of Quark's layers, the tensors tell the one that was used") {
  const Json channels = QuarkChannels().config["quantization_config"]["global_quant_config"];
  const Json one = QuarkFp8().config["quantization_config"]["global_quant_config"];
  TestCheckpoint stored = QuarkChannels();
  Json& rules = QuarkConfigOf(stored)["layer_quant_config"];
  for (const auto& [first, second] : {std::pair(one, channels), std::pair(channels, one)}) {
    rules = {{"*.mlp.*", first}, {"*up_proj", second}};
    CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8afp8 channel");
  }
  // Rules that say the same are one.
  rules = {{"*.mlp.*", channels}, {"*up_proj", channels}};
  CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8afp8 channel");
  // None fits: the error is that of the first.
  rules = {{"*.mlp.*", one}, {"*up_proj", {{"weight", nullptr}}}};
  CheckError(ReadEverything(stored), ErrorKind::kMalformed,
             "the shape of the scales contradicts the weight");
  // Both do.
  rules["*up_proj"] = channels;
  rules["*.mlp.*"] = channels;
  rules["*.mlp.*"]["input_tensors"] = nullptr;
  const Status status = ReadEverything(stored);
  CheckError(status, ErrorKind::kMalformed,
             "mlp.up_proj: two rules of the config match the module, and they differ (found "
             "\"*.mlp.*\" and \"*up_proj\"");
  CHECK(status.id() == "module-rules-differ");
}

TEST_CASE("of patterns of Quark's layers, one that is not read may be the one that was used") {
  const Json channels = QuarkChannels().config["quantization_config"]["global_quant_config"];
  TestCheckpoint stored = QuarkChannels();
  Json& rules = QuarkConfigOf(stored)["layer_quant_config"];
  rules = {{"*.mlp.*", channels}, {"*up_proj", {{"weight", {{"dtype", "fp6_e2m3"}}}}}};
  CHECK(ReadEverything(stored).id() == "module-rules-differ");
}

TEST_CASE("activations that are not read are an error of their modules only") {
  TestCheckpoint stored = QuarkChannels();
  Json rule = QuarkConfigOf(stored)["global_quant_config"];
  rule["input_tensors"] = {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}};
  QuarkConfigOf(stored)["layer_quant_config"] = {{"*down_proj", rule}};
  for (const std::string name : {".weight", ".weight_scale"}) {
    TestTensor copy = stored.At(kFp8Module + name);
    copy.name = "model.layers.0.mlp.down_proj" + name;
    stored.tensors.push_back(copy);
  }
  const TempFolder folder;
  stored.Write(folder.path());
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  RequireOk(checkpoint.status());
  const Result<QuantizedModel> model = ExamineQuantizedModel(*checkpoint);
  RequireOk(model.status());
  REQUIRE(model->modules.size() == 1);
  CHECK(model->modules.front()->module() == kFp8Module);
  REQUIRE(model->errors.size() == 1);
  CheckError(
      model->errors.front(), ErrorKind::kUnsupported,
      "mlp.down_proj: config.json: quantization_config.layer_quant_config.*down_proj."
      "input_tensors: activations of this kind are not supported with FP8 weights (found "
      "fp4 per_group, static, expected fp8_e4m3 per_tensor, or dynamic per_channel with "
      "ch_axis 1). Quantize the model again with such activations, or quantize the weights only");
}

TEST_CASE("the names of the first versions of Quark mean the same") {
  TestCheckpoint stored = QuarkChannels();
  Json& inputs = QuarkInputOf(stored);
  inputs = {{"dtype", "fp8_e4m3"}, {"qscheme", "per_channel"}, {"axis", 1}, {"dynamic", true}};
  CHECK(DescribeActivations(QuarkSchemeOf(stored).activations) == "8-bit float per token dynamic");
  inputs["axis"] = 0;
  CHECK(ReadEverything(stored).id() == "scheme-unsupported");
}

TEST_CASE("rotations that activations need at run time are refused, others are not") {
  TestCheckpoint stored = QuarkChannels();
  Json& steps = QuarkConfigOf(stored)["algo_config"];
  Json rotation = {{"name", "rotation"}, {"r1", true}, {"r2", true}, {"r3", true}, {"r4", false}};
  steps = {{{"name", "awq"}}, rotation};
  CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8afp8 channel");
  rotation["online_config"] = {{"online_rotation_layers", {"model.layers.0.mlp.down_proj"}}};
  steps = Json::array({rotation});  // braces alone are an array for g++ only
  CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8afp8 channel");
  steps[0]["r4"] = true;
  CHECK(DescribeScheme(QuarkSchemeOf(stored)) == "wfp8afp8 channel");
  steps[0]["online_config"]["online_rotation_layers"] = {kFp8Module};
  CheckError(ReadEverything(stored), ErrorKind::kUnsupported,
             "mlp.up_proj: the module rotates its inputs at run time (found online_rotation_layers "
             "in the config, expected only rotations that are folded into the weights). Quantize "
             "the model without r4 and online_r1_rotation");
  // Older versions do not say which modules: it may be any.
  steps[0].erase("online_config");
  CheckError(ReadEverything(stored), ErrorKind::kUnsupported,
             "quantization_config.algo_config: the model rotates activations at run time (found "
             "r4");
  steps = {{"name", "rotation"}, {"online_r1_rotation", true}};
  const Status status = ReadEverything(stored);
  CheckError(status, ErrorKind::kUnsupported,
             "quantization_config.algo_config: the model rotates activations at run time (found "
             "online_r1_rotation");
  CHECK(status.id() == "rotation");
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
       "mlp.up_proj: weights of this kind are not supported (found MXFP4, expected int4, "
       "uint4, int8 or uint8; fp8_e4m3 per_tensor or per_channel; MXFP4 in groups of 32, or "
       "NVFP4)"},
      {"AMDFP4", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t) = {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"scale_format", "e5m3"}};
       },
       unsupported, "scheme-unsupported", "(found AMDFP4 (scales in e5m3), expected"},
      {"NVFP4", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t) = Json::array({{{"dtype", "fp4"}}, {{"dtype", "fp8_e4m3"}}});
       },
       unsupported, "scheme-unsupported",
       "weights that are quantized twice are not supported (found fp4 and then fp8_e4m3, expected "
       "int4"},
      {"int4 of FP8", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t) = Json::array({{{"dtype", "fp8_e4m3"}}, {{"dtype", "int4"}}});
       },
       unsupported, "scheme-unsupported",
       "weights that are quantized twice are not supported (found fp8_e4m3 and then int4, expected "
       "int4"},
      {"MXFP6", QuarkFp8, [](T t) { QuarkWeightOf(t)["dtype"] = "fp6_e2m3"; }, unsupported,
       "scheme-unsupported", "(found MXFP6 (fp6_e2m3), expected int4"},
      {"MXFP8", QuarkFp8,
       [](T t) {
         QuarkWeightOf(t)["qscheme"] = "per_group";
         QuarkWeightOf(t)["scale_format"] = "e8m0";
       },
       unsupported, "scheme-unsupported", "(found MXFP8, expected int4"},
      {"integers of 3 bits", QuarkFp8, [](T t) { QuarkWeightOf(t)["dtype"] = "int3"; }, unsupported,
       "scheme-unsupported", "(found int3 per_tensor, expected int4"},
      {"MX6", QuarkFp8, [](T t) { QuarkWeightOf(t)["dtype"] = "mx6"; }, unsupported,
       "scheme-unsupported", "(found OCP MX (mx6), expected int4"},
      {"integers with activations in FP8", QuarkFp8,
       [](T t) { QuarkWeightOf(t)["dtype"] = "int8"; }, unsupported, "scheme-unsupported",
       "input_tensors: activations of this kind are not supported with integer weights (found "
       "fp8_e4m3 per_tensor, static, expected int8 or uint8 per_tensor, or dynamic per_channel "
       "with ch_axis 1; dynamic uint8 must be asymmetric). Quantize the model again with such "
       "activations, or quantize the weights only"},
      {"channels that are inputs", QuarkChannels, [](T t) { QuarkWeightOf(t)["ch_axis"] = 1; },
       unsupported, "scheme-unsupported",
       "(found fp8_e4m3 per_channel of the inputs, expected int4"},
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
      {"an algorithm that is none", QuarkFp8, [](T t) { QuarkConfigOf(t)["algo_config"] = {1}; },
       malformed, "config-field-invalid", "algo_config: the field has the wrong type"},
      {"an online rotation that is none", QuarkFp8,
       [](T t) {
         QuarkConfigOf(t)["algo_config"] = {{{"name", "rotation"}, {"online_config", 1}}};
       },
       malformed, "config-field-invalid", "online_config: the field has the wrong type"},
      {"a bias that is quantized", QuarkFp8,
       [](T t) {
         AddZeros(t, kFp8Module + ".bias", "I8", {3}, 3);
         AddZeros(t, kFp8Module + ".bias_scale", "F32", {}, 4);
       },
       unsupported, "bias-quantized",
       "mlp.up_proj: the bias is quantized (found I8 with bias_scale, expected a bias in floating "
       "point). Quantize the model again, and leave `bias` out of the quantization config"},
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
  const OpenedModel padded = CheckTruth("quark-padded", "quark", 7);
  CHECK(padded.Module("model.layers.0.mlp.gate_proj").n() == 196);
  CHECK(padded.Module("model.layers.0.mlp.up_proj").n() == 196);
  const QuantizedLinear& query = padded.Module("model.layers.0.self_attn.q_proj");
  CHECK(DescribeActivations(query.scheme().activations) ==
        "8-bit int per tensor static asymmetric");
  const OpenedModel first = CheckTruth("quark-first", "quark", 7);
  CHECK(DescribeScheme(first.Module("model.layers.0.self_attn.q_proj").scheme()) ==
        "w8a16 group 32 symmetric");
  CHECK(DescribeScheme(first.Module("model.layers.0.self_attn.k_proj").scheme()) ==
        "w8a16 group 64 asymmetric");
  CheckTruth("quark-awq", "awq", 7, "w4a16 group 32 symmetric");
  const OpenedModel mixed = CheckTruth("quark-fp8-int4", "quark", 7);
  CHECK(DescribeScheme(mixed.Module("model.layers.0.mlp.up_proj").scheme()) ==
        "w4a16 group 32 symmetric");
  CHECK(DescribeScheme(mixed.Module("model.layers.0.self_attn.q_proj").scheme()) ==
        "wfp8afp8 tensor");
}

}  // namespace
}  // namespace prepack::testing
