// The quantization_config of outputs that are checkpoints, in the words of each format.

#include "prepack/packed/checkpoint_config.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prepack/container/json.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/output_config.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

Scheme IntegerGroups(uint32_t bits, uint64_t group_size, bool symmetric) {
  return {.code = UnsignedCodeFor(bits),
          .bits = bits,
          .granularity = Granularity::kGroup,
          .group_size = group_size,
          .symmetric = symmetric};
}

Scheme Float8(Granularity granularity, const ActivationScheme& activations) {
  return {.code = CodeType::kF8E4M3,
          .bits = 8,
          .granularity = granularity,
          .group_size = 128,
          .scale_rows = granularity == Granularity::kBlock ? 128U : 1U,
          .activations = activations};
}

constexpr ActivationScheme kFloatTokens = {.type = ActivationType::kFloat, .bits = 8};
constexpr ActivationScheme kFloatStatic = {.type = ActivationType::kFloat,
                                           .bits = 8,
                                           .dynamic = false,
                                           .granularity = ActivationGranularity::kTensor};
const Scheme kFour = IntegerGroups(4, 128, true);
const Scheme kFourAsymmetric = IntegerGroups(4, 128, false);
const Scheme kEight = IntegerGroups(8, 64, true);
const Scheme kPlain = {.code = CodeType::kBF16, .bits = 16, .granularity = Granularity::kTensor};

Json ConfigFor(std::string_view target, const std::vector<PackedScheme>& modules,
               const std::vector<std::string>& plain = {"lm_head"},
               const Json& source = Json::object()) {
  const std::optional<Json> config =
      CheckpointQuantization(target, source, modules, {plain, "self_attn.k_scale"});
  REQUIRE(config.has_value());
  return *config;
}

// Three of one kind, one of another, which has the role to itself.
std::vector<PackedScheme> TwoKinds(const Layout& layout) {
  return {{"model.layers.0.mlp.down_proj", layout.id, &kEight},
          {"model.layers.0.mlp.up_proj", layout.id, &kFour},
          {"model.layers.0.self_attn.q_proj", layout.id, &kFour},
          {"model.layers.1.mlp.down_proj", layout.id, &kEight},
          {"model.layers.1.mlp.up_proj", layout.id, &kFour}};
}

TEST_CASE("one group of compressed-tensors is for all linear layers, the head by name") {
  const Json config =
      ConfigFor("compressed-tensors",
                {{"lm_head", kCtPacked.id, &kFour}, {"model.layers.0.a", kCtPacked.id, &kFour}},
                {"model.layers.0.mlp.gate"}, {{"kv_cache_scheme", {{"num_bits", 8}}}});
  CHECK(config.at("quant_method") == "compressed-tensors");
  CHECK(config.at("format") == "pack-quantized");
  CHECK(config.at("quantization_status") == "compressed");
  CHECK(config.at("ignore") == Json{"model.layers.0.mlp.gate"});
  CHECK(config.at("kv_cache_scheme").at("num_bits") == 8);
  const Json& group = config.at("config_groups").at("group_0");
  CHECK(group.at("targets") == Json{"Linear", "lm_head"});
  CHECK(group.at("format") == "pack-quantized");
  CHECK(group.at("input_activations").is_null());
  CHECK(group.at("weights") == Json{{"num_bits", 4},
                                    {"type", "int"},
                                    {"symmetric", true},
                                    {"strategy", "group"},
                                    {"dynamic", false},
                                    {"group_size", 128}});
}

TEST_CASE("several groups of compressed-tensors name their modules by patterns that are exact") {
  const Json config = ConfigFor("compressed-tensors", TwoKinds(kCtPacked));
  const Json& groups = config.at("config_groups");
  REQUIRE(groups.size() == 2);
  CHECK(groups.at("group_0").at("targets") == Json{R"(re:^model\.layers\.\d+\.mlp\.down_proj$)"});
  CHECK(groups.at("group_1").at("targets") ==
        Json{R"(re:^model\.layers\.\d+\.mlp\.up_proj$)",
             R"(re:^model\.layers\.\d+\.self_attn\.q_proj$)"});
  CHECK(config.at("format") == "pack-quantized");
}

TEST_CASE("where modules of a role differ, each is named") {
  const std::vector<PackedScheme> modules = {{"m.layers.0.a", kCtPacked.id, &kFour},
                                             {"m.layers.1.a", kCtPacked.id, &kEight}};
  const Json config = ConfigFor("compressed-tensors", modules);
  CHECK(config.at("config_groups").at("group_0").at("targets") == Json{R"(re:^m\.layers\.0\.a$)"});
  CHECK(config.at("config_groups").at("group_1").at("targets") == Json{R"(re:^m\.layers\.1\.a$)"});
}

TEST_CASE("compressed-tensors before 0.18 has one format, and an order of groups") {
  const Json config = ConfigFor("compressed-tensors-0.17", {{.module = "m.layers.0.a",
                                                             .layout = kCtPackedAligned.id,
                                                             .scheme = &kFour,
                                                             .act_order = true}});
  CHECK(config.at("version") == "0.17.0");
  const Json& group = config.at("config_groups").at("group_0");
  CHECK_FALSE(group.contains("format"));
  CHECK(group.at("weights").at("actorder") == "group");
}

TEST_CASE("the floats of compressed-tensors say their blocks, exponents and activations") {
  const Scheme blocks = Float8(Granularity::kBlock, kFloatTokens);
  Json config = ConfigFor("compressed-tensors", {{"m.a", kCtFloat.id, &blocks}});
  const Json* group = &config.at("config_groups").at("group_0");
  CHECK(config.at("format") == "float-quantized");
  CHECK(group->at("weights").at("strategy") == "block");
  CHECK(group->at("weights").at("block_structure") == Json{128, 128});
  CHECK(group->at("input_activations") == Json{{"num_bits", 8},
                                               {"type", "float"},
                                               {"symmetric", true},
                                               {"strategy", "token"},
                                               {"dynamic", true}});

  Scheme nvfp4 = {
      .code = CodeType::kF4E2M1, .bits = 4, .granularity = Granularity::kGroup, .group_size = 16};
  nvfp4.activations = {.type = ActivationType::kFloat,
                       .bits = 4,
                       .granularity = ActivationGranularity::kGroup,
                       .group_size = 16};
  config = ConfigFor("compressed-tensors", {{"m.a", kCtNvfp4.id, &nvfp4}});
  group = &config.at("config_groups").at("group_0");
  CHECK(group->at("weights").at("strategy") == "tensor_group");
  CHECK(group->at("input_activations").at("dynamic") == "local");
  CHECK(group->at("input_activations").at("group_size") == 16);

  const Scheme mxfp4 = {
      .code = CodeType::kF4E2M1, .bits = 4, .granularity = Granularity::kGroup, .group_size = 32};
  config = ConfigFor("compressed-tensors", {{"m.a", kCtMxfp4.id, &mxfp4}});
  CHECK(config.at("config_groups").at("group_0").at("weights").at("scale_dtype") == "torch.uint8");
}

TEST_CASE("GPTQ has rules for modules that are plain or of another kind, also under fused names") {
  std::vector<PackedScheme> modules = TwoKinds(kGptqV1);
  const Json config = ConfigFor("gptq", modules, {"lm_head", "model.layers.0.mlp.gate_proj"});
  CHECK(config.at("bits") == 4);
  CHECK(config.at("group_size") == 128);
  CHECK(config.at("sym") == true);
  CHECK(config.at("desc_act") == false);
  CHECK(config.at("checkpoint_format") == "gptq");
  CHECK(config.at("lm_head") == false);
  CHECK_FALSE(config.contains("meta"));
  const Json& rules = config.at("dynamic");
  REQUIRE(rules.size() == 3);
  CHECK(rules.at(R"(-:^lm_head$)").empty());
  CHECK(rules.at(R"(-:^model\.layers\.\d+\.mlp\.(?:gate_proj|gate_up_proj)$)").empty());
  CHECK(rules.at(R"(+:^model\.layers\.\d+\.mlp\.down_proj$)").at("bits") == 8);
}

TEST_CASE("GPTQModel takes asymmetric weights of version 1 only from a writer it trusts") {
  const std::vector<PackedScheme> modules = {{"m.layers.0.a", kGptqV1.id, &kFourAsymmetric}};
  CHECK(ConfigFor("gptq", modules).at("meta").at("quantizer") == Json{"gptqmodel:0.9.0"});
  const Json second = ConfigFor("gptq-v2", modules);
  CHECK_FALSE(second.contains("meta"));
  CHECK(second.at("checkpoint_format") == "gptq_v2");
}

TEST_CASE("AWQ always has zero points, and leaves out names that are parts of quantized ones") {
  const Json config = ConfigFor("awq", {{"m.layers.1.mlp.gate_proj", kAwqGemm.id, &kFour}},
                                {"lm_head", "m.layers.0.mlp.gate", "m.layers.1.mlp.gate"});
  CHECK(config.at("zero_point") == true);
  CHECK(config.at("version") == "gemm");
  CHECK(config.at("modules_to_not_convert") == Json{"lm_head", "m.layers.0.mlp.gate"});
}

TEST_CASE("AutoRound names every exception, and the lists of its layers") {
  const Json config = ConfigFor("auto-round", TwoKinds(kAutoRoundGptq));
  CHECK(config.at("packing_format") == "auto_round:auto_gptq");
  CHECK(config.at("block_name_to_quantize") == "model.layers");
  const Json& extra = config.at("extra_config");
  CHECK(extra.size() == 3);
  CHECK(extra.at("lm_head") == Json{{"bits", 16}, {"data_type", "float"}});
  CHECK(extra.at("model.layers.1.mlp.down_proj").at("bits") == 8);
  CHECK(config.at("sym") == true);
  // AWQ's form always has zero points.
  CHECK(ConfigFor("auto-round-awq", {{"m.layers.0.a", kAutoRoundAwq.id, &kFour}}).at("sym") ==
        false);
}

TEST_CASE("FP8 of transformers and ModelOpt's algorithms") {
  const Scheme blocks = Float8(Granularity::kBlock, kFloatTokens);
  const Scheme tensor = Float8(Granularity::kTensor, kFloatStatic);
  const Scheme wide = Float8(Granularity::kBlock, {});
  const Json fp8 = ConfigFor("fp8", {{"m.a", kFp8Blocks.id, &blocks}});
  CHECK(fp8.at("weight_block_size") == Json{128, 128});
  CHECK(fp8.at("activation_scheme") == "dynamic");
  CHECK(ConfigFor("fp8", {{"m.a", kFp8Blocks.id, &tensor}}).at("weight_block_size").is_null());
  CHECK(ConfigFor("mxfp4", {{"m.a", kMxfp4Stacks.id, &blocks}}, {"lm_head"}) ==
        Json{{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}});
  CHECK(ConfigFor("modelopt", {{"m.a", kModelOptFp8.id, &tensor}}).at("quant_algo") == "FP8");
  const Json mixed =
      ConfigFor("modelopt", {{"m.a", kModelOptFp8.id, &tensor}, {"m.b", kModelOptFp8.id, &wide}});
  CHECK(mixed.at("quant_algo") == "MIXED_PRECISION");
  CHECK(mixed.at("quantized_layers").at("m.b").at("quant_algo") == "FP8_PB_WO");
}

TEST_CASE("nothing quantized, nothing said") {
  CHECK_FALSE(CheckpointQuantization("bf16", Json::object(), {}, {}).has_value());
  const std::vector<PackedScheme> plain = {{"m.a", "plain/bf16", &kPlain}};
  CHECK_FALSE(CheckpointQuantization("gptq", Json::object(), plain, {}).has_value());
}

TEST_CASE("plain modules are matrices that pass through or were dequantized, and the head") {
  Manifest manifest;
  const auto tensor = [&](std::string name, TensorShape shape) {
    TensorRecord& record = manifest.tensors.emplace_back();
    record.tensor = std::move(name);
    record.shape = std::move(shape);
  };
  tensor("m.layers.0.mlp.gate.weight", {8, 64});
  tensor("m.layers.0.norm.weight", {64});
  tensor("m.embed_tokens.weight", {100, 64});
  tensor("m.conv.weight", {8, 8, 3});
  tensor("m.layers.0.k_scale", {1, 1});
  const std::vector<PackedScheme> modules = {{"m.layers.0.a", "plain/bf16", &kPlain},
                                             {"m.layers.0.b", kGptqV1.id, &kFour}};
  CHECK(FindPlainTensors(OwnRecords(manifest), modules).modules ==
        std::vector<std::string>{"lm_head", "m.layers.0.a", "m.layers.0.mlp.gate"});
  const std::vector<PackedScheme> head = {{"lm_head", kGptqV1.id, &kFour}};
  CHECK(FindPlainTensors(OwnRecords(manifest), head).modules ==
        std::vector<std::string>{"m.layers.0.mlp.gate"});
}

TEST_CASE("how keys are cached is said where the format finds the scales") {
  const Json source = {{"kv_cache_scheme", {{"num_bits", 8}}}};
  const Scheme tensor = Float8(Granularity::kTensor, kFloatStatic);
  const auto says = [&](std::string_view target, std::string_view layout, std::string_view scale) {
    const std::vector<PackedScheme> modules = {{"m.a", layout, &tensor}};
    return CheckpointQuantization(target, source, modules, {{}, scale})
        ->contains("kv_cache_scheme");
  };
  CHECK(says("compressed-tensors", kCtFloat.id, "self_attn.k_scale"));
  CHECK_FALSE(says("compressed-tensors", kCtFloat.id, "k_proj.k_scale"));
  CHECK_FALSE(says("compressed-tensors", kCtFloat.id, ""));
  CHECK(says("modelopt", kModelOptFp8.id, "k_proj.k_scale"));
  CHECK_FALSE(says("fp8", kFp8Blocks.id, "k_proj.k_scale"));
}

TEST_CASE("a model that becomes bf16 says so, in all its parts") {
  Manifest manifest;
  manifest.target = "bf16";
  const std::string text = OutputConfigText(
      R"({"torch_dtype": "float16", "text_config": {"dtype": "float16", "x": 1},
          "quantization_config": {"quant_method": "awq"}, "y": {"dtype": "float16"}})",
      manifest, OwnRecords(manifest), {});
  CHECK(Value(ParseJsonStrict(text, "")) == Json{{"torch_dtype", "bfloat16"},
                                                 {"text_config", {{"dtype", "bfloat16"}, {"x", 1}}},
                                                 {"y", {{"dtype", "float16"}}}});
}

}  // namespace
}  // namespace prepack::testing
