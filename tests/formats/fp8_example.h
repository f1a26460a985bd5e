#pragma once

// FP8 checkpoints of one module.

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/checkpoint_builder.h"

namespace prepack::testing {

inline const std::string kFp8Module = "model.layers.0.mlp.up_proj";

// [3, 5] in blocks of 2 × 4, so that both edges are partial. Row n is 1 throughout, and the scale
// of block (i, j) is 1 + 2i + j: W[n, k] = 1 + 2·(n / 2) + k / 4.
inline TestCheckpoint Fp8Blocks() {
  TestCheckpoint stored;
  stored.config = {{"quantization_config",
                    {{"quant_method", "fp8"},
                     {"activation_scheme", "dynamic"},
                     {"fmt", "e4m3"},
                     {"weight_block_size", {2, 4}}}}};
  stored.tensors = {
      {kFp8Module + ".weight", "F8_E4M3", {3, 5}, std::vector<std::byte>(15, std::byte{0x38})},
      {kFp8Module + ".weight_scale_inv",
       "F32",
       {2, 2},
       Hex("00 00 80 3f 00 00 00 40 00 00 40 40 00 00 80 40")},
      {"model.norm.weight", "BF16", {1}, Hex("80 3f")},
  };
  return stored;
}

inline TestCheckpoint Fp8Static() {
  TestCheckpoint stored = Fp8Blocks();
  Json& config = stored.config["quantization_config"];
  config.erase("weight_block_size");
  config["activation_scheme"] = "static";
  stored.Remove(kFp8Module + ".weight_scale_inv");
  stored.tensors.push_back({kFp8Module + ".weight_scale", "BF16", {1}, Hex("00 40")});
  stored.tensors.push_back({kFp8Module + ".input_scale", "F32", {}, Hex("00 00 00 3f")});
  return stored;
}

// Scales that are given as numbers.
inline std::vector<std::byte> Floats32(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Two experts of I = 2 and H = 3, in blocks of 2 × 2: gate_up_proj [2, 4, 3] and down_proj
// [2, 3, 2]. Every code is 1; the scale of block (i, j) of expert e is 1 + i + 2j + 4e.
inline TestCheckpoint Fp8Experts() {
  TestCheckpoint stored = Fp8Blocks();
  stored.config["quantization_config"]["weight_block_size"] = {2, 2};
  const std::string experts = "model.layers.0.mlp.experts.";
  stored.tensors = {
      {experts + "gate_up_proj", "F8_E4M3", {2, 4, 3}, std::vector<std::byte>(24, std::byte{0x38})},
      {experts + "gate_up_proj_scale_inv", "F32", {2, 2, 2}, Floats32({1, 3, 2, 4, 5, 7, 6, 8})},
      {experts + "down_proj", "F8_E4M3", {2, 3, 2}, std::vector<std::byte>(12, std::byte{0x38})},
      {experts + "down_proj_scale_inv", "F32", {2, 2, 1}, Floats32({1, 2, 5, 6})},
      {"model.norm.weight", "BF16", {1}, Hex("80 3f")},
  };
  return stored;
}

// The same with matrices stored [K, N].
inline TestCheckpoint Fp8ExpertsTransposed() {
  TestCheckpoint stored = Fp8Experts();
  const std::string experts = "model.layers.0.mlp.experts.";
  stored.At(experts + "gate_up_proj").shape = {2, 3, 4};
  stored.At(experts + "gate_up_proj_scale_inv").bytes = Floats32({1, 2, 3, 4, 5, 6, 7, 8});
  stored.At(experts + "down_proj").shape = {2, 2, 3};
  stored.At(experts + "down_proj_scale_inv").shape = {2, 1, 2};
  return stored;
}

// The same, but gate_proj and up_proj have weights of their own [2, 3].
inline TestCheckpoint Fp8SplitExperts() {
  TestCheckpoint stored = Fp8Experts();
  const std::string experts = "model.layers.0.mlp.experts.";
  stored.Remove(experts + "gate_up_proj");
  stored.Remove(experts + "down_proj");
  for (const std::string expert : {"0.", "1."}) {
    for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
      const std::vector<uint64_t> shape =
          name == "down_proj" ? std::vector<uint64_t>{3, 2} : std::vector<uint64_t>{2, 3};
      stored.tensors.push_back({experts + expert + name + ".weight", "F8_E4M3", shape,
                                std::vector<std::byte>(6, std::byte{0x38})});
    }
  }
  return stored;
}

// ModelOpt's FP8: a module [3, 5] of ones, scale 2, activations of scale 1/2.
inline TestCheckpoint ModelOptFp8() {
  TestCheckpoint stored;
  stored.config = {{"quantization_config",
                    {{"quant_method", "modelopt"},
                     {"quant_algo", "FP8"},
                     {"ignore", {"lm_head", "model.visual*"}},
                     {"producer", {{"name", "modelopt"}, {"version", "0.47.0"}}}}}};
  stored.tensors = {
      {kFp8Module + ".weight", "F8_E4M3", {3, 5}, std::vector<std::byte>(15, std::byte{0x38})},
      {kFp8Module + ".weight_scale", "F32", {}, Floats32({2})},
      {kFp8Module + ".input_scale", "F32", {}, Floats32({0.5F})},
      {"model.norm.weight", "BF16", {1}, Hex("80 3f")},
  };
  return stored;
}

// The same by Quark.
inline TestCheckpoint QuarkFp8() {
  TestCheckpoint stored = ModelOptFp8();
  const Json input = {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}};
  const Json weight = {{"dtype", "fp8_e4m3"},
                       {"qscheme", "per_tensor"},
                       {"is_dynamic", false},
                       {"scale_format", nullptr},
                       {"symmetric", true}};
  stored.config = {
      {"quantization_config",
       {{"quant_method", "quark"},
        {"global_quant_config", {{"weight", weight}, {"input_tensors", input}}},
        {"layer_quant_config", Json::object()},
        {"layer_type_quant_config", Json::object()},
        {"exclude", {"lm_head"}},
        {"export", {{"weight_format", "real_quantized"}, {"pack_method", "reorder"}}}}}};
  return stored;
}

}  // namespace prepack::testing
