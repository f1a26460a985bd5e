#pragma once

// FP4 checkpoints of one module [2, 32] in each dialect. Row 0 has all 16 codes twice, row 1 code 2
// (which is 1) throughout.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/checkpoint_builder.h"
#include "formats/fp8_example.h"

namespace prepack::testing {

inline std::vector<std::byte> Fp4Codes() {
  return Hex(
      "10 32 54 76 98 ba dc fe 10 32 54 76 98 ba dc fe"
      "22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22");
}

inline Json CtFloatConfig(const std::string& format, const Json& weights) {
  return {{"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"quantization_status", "compressed"},
            {"ignore", Json::array()},
            {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}}}};
}

// Scales 1 and 2.
inline TestCheckpoint CtMxfp4() {
  TestCheckpoint stored;
  stored.config = CtFloatConfig(
      "mxfp4-pack-quantized",
      {{"num_bits", 4}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}});
  stored.tensors = {{kFp8Module + ".weight_packed", "U8", {2, 16}, Fp4Codes()},
                    {kFp8Module + ".weight_scale", "U8", {2, 1}, Hex("7f 80")},
                    {"model.norm.weight", "BF16", {1}, Hex("80 3f")}};
  return stored;
}

// Scales 1, 2, 0.5 and 1.125, all divided by 2.
inline TestCheckpoint CtNvfp4() {
  TestCheckpoint stored = CtMxfp4();
  stored.config = CtFloatConfig(
      "nvfp4-pack-quantized",
      {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}});
  stored.Remove(kFp8Module + ".weight_scale");
  stored.tensors.push_back({kFp8Module + ".weight_scale", "F8_E4M3", {2, 2}, Hex("38 40 30 39")});
  stored.tensors.push_back({kFp8Module + ".weight_global_scale", "F32", {1}, Floats32({2})});
  return stored;
}

// FP8 codes 1, in two groups of 32; scales 1, 2, 0.5 and 4.
inline TestCheckpoint CtMxfp8() {
  TestCheckpoint stored = CtMxfp4();
  stored.config = CtFloatConfig(
      "mxfp8-quantized",
      {{"num_bits", 8}, {"type", "float"}, {"strategy", "group"}, {"group_size", 32}});
  stored.tensors = {
      {kFp8Module + ".weight", "F8_E4M3", {2, 64}, std::vector<std::byte>(128, std::byte{0x38})},
      {kFp8Module + ".weight_scale", "U8", {2, 2}, Hex("7f 80 7e 81")},
      {"model.norm.weight", "BF16", {1}, Hex("80 3f")}};
  return stored;
}

// The numbers of CtNvfp4.
inline TestCheckpoint ModelOptNvfp4() {
  TestCheckpoint stored = CtNvfp4();
  stored.config = ModelOptFp8().config;
  Json& config = stored.config["quantization_config"];
  config["quant_algo"] = "NVFP4";
  config["group_size"] = 16;
  stored.At(kFp8Module + ".weight_packed").name = kFp8Module + ".weight";
  stored.Remove(kFp8Module + ".weight_global_scale");
  stored.tensors.push_back({kFp8Module + ".weight_scale_2", "F32", {}, Floats32({0.5F})});
  stored.tensors.push_back({kFp8Module + ".input_scale", "F32", {}, Floats32({0.25F})});
  return stored;
}

// Two experts [2, 32] of ModelOpt that are stacked with the inputs first. Expert 0 has the numbers
// of CtNvfp4; expert 1 has code 2 (which is 1) throughout, and scales of 1.
inline TestCheckpoint ModelOptNvfp4Stack() {
  TestCheckpoint stored = ModelOptNvfp4();
  const std::string stack = "model.layers.0.mlp.experts.gate_up_proj";
  std::vector<std::byte> codes;
  for (size_t pair = 0; pair < 16; ++pair) {
    codes.push_back(Fp4Codes()[pair]);
    codes.push_back(Fp4Codes()[16 + pair]);
  }
  codes.resize(64, std::byte{0x22});
  stored.tensors = {{stack, "U8", {2, 16, 2}, codes},
                    {stack + "_weight_scale", "F8_E4M3", {2, 2, 2}, Hex("38 30 40 39 40 40 40 40")},
                    {stack + "_weight_scale_2", "F32", {}, Floats32({0.5F})},
                    {stack + "_input_scale", "F32", {}, Floats32({0.25F})},
                    {stack + "_bias", "BF16", {2, 2}, Hex("80 3f 80 3f 80 3f 80 3f")},
                    {"model.norm.weight", "BF16", {1}, Hex("80 3f")}};
  return stored;
}

// The numbers of CtMxfp4.
inline TestCheckpoint QuarkMxfp4() {
  TestCheckpoint stored = CtMxfp4();
  stored.config = QuarkFp8().config;
  const Json spec = {{"dtype", "fp4"},     {"qscheme", "per_group"}, {"ch_axis", -1},
                     {"group_size", 32},   {"scale_format", "e8m0"}, {"symmetric", nullptr},
                     {"is_dynamic", false}};
  Json input = spec;
  input["is_dynamic"] = true;
  stored.config["quantization_config"]["global_quant_config"] = {{"weight", spec},
                                                                 {"input_tensors", input}};
  stored.At(kFp8Module + ".weight_packed").name = kFp8Module + ".weight";
  return stored;
}

// MiniMax M3: the numbers of CtMxfp8.
inline TestCheckpoint MinimaxMxfp8() {
  TestCheckpoint stored = CtMxfp8();
  stored.config = {{"quantization_config",
                    {{"quant_method", "mxfp8"},
                     {"activation_scheme", "dynamic"},
                     {"scale_fmt", "ue8m0"},
                     {"weight_block_size", {1, 32}},
                     {"ignored_layers", {"lm_head"}}}}};
  stored.At(kFp8Module + ".weight_scale").name = kFp8Module + ".weight_scale_inv";
  return stored;
}

inline const std::string kDeepSeekExpert = "layers.0.ffn.experts.0.w1";
inline const std::string kDeepSeekShared = "layers.0.ffn.shared_experts.w1";

// DeepSeek V4: an expert with the numbers of CtMxfp4, and FP8 ones in one block of scale 2.
inline TestCheckpoint DeepSeekV4() {
  TestCheckpoint stored;
  stored.config = {{"architectures", {"DeepseekV4ForCausalLM"}},
                   {"tie_word_embeddings", false},
                   {"vocab_size", 2},
                   {"expert_dtype", "fp4"},
                   {"quantization_config",
                    {{"quant_method", "fp8"},
                     {"activation_scheme", "dynamic"},
                     {"fmt", "e4m3"},
                     {"scale_fmt", "ue8m0"},
                     {"weight_block_size", {128, 128}}}}};
  stored.tensors = {
      {kDeepSeekExpert + ".weight", "I8", {2, 16}, Fp4Codes()},
      {kDeepSeekExpert + ".scale", "F8_E8M0", {2, 1}, Hex("7f 80")},
      {kDeepSeekShared + ".weight", "F8_E4M3", {2, 32}, std::vector(64, std::byte{0x38})},
      {kDeepSeekShared + ".scale", "F8_E8M0", {1, 1}, Hex("80")},
      {"embed.weight", "BF16", {1, 2}, Hex("80 3f 80 3f")},
      {"head.weight", "BF16", {1, 2}, Hex("80 3f 80 3f")},
      {"layers.0.ffn_norm.weight", "BF16", {1}, Hex("80 3f")},
      {"norm.weight", "BF16", {1}, Hex("80 3f")}};
  return stored;
}

// The numbers of ModelOptNvfp4.
inline TestCheckpoint QuarkNvfp4() {
  TestCheckpoint stored = ModelOptNvfp4();
  stored.config = QuarkFp8().config;
  Json codes = {{"dtype", "fp4"},           {"qscheme", "per_group"}, {"ch_axis", -1},
                {"group_size", 16},         {"symmetric", nullptr},   {"is_dynamic", false},
                {"scale_format", "float32"}};
  const Json scales = {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_scale_quant", true}};
  const Json weight = Json::array({codes, scales});
  codes["is_dynamic"] = true;
  stored.config["quantization_config"]["global_quant_config"] = {
      {"weight", weight}, {"input_tensors", Json::array({codes, scales})}};
  stored.At(kFp8Module + ".input_scale").name = kFp8Module + ".input_scale_2";
  return stored;
}

// Two experts of gate_up_proj; the first has the numbers of CtMxfp4, the second the same codes and
// scales 4 and 8.
inline TestCheckpoint GptOssMxfp4() {
  TestCheckpoint stored;
  stored.config = {{"quantization_config",
                    {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}}}};
  const std::string stem = "model.layers.0.mlp.experts.gate_up_proj";
  std::vector<std::byte> codes = Fp4Codes();
  codes.insert(codes.end(), codes.begin(), codes.begin() + 32);
  stored.tensors = {{stem + "_blocks", "U8", {2, 2, 1, 16}, codes},
                    {stem + "_scales", "U8", {2, 2, 1}, Hex("7f 80 81 82")},
                    {stem + "_bias", "BF16", {2, 2}, Hex("80 3f 80 3f 80 3f 80 3f")},
                    {"model.norm.weight", "BF16", {1}, Hex("80 3f")}};
  return stored;
}

}  // namespace prepack::testing
