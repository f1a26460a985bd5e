#pragma once

// The smallest checkpoint that layouts take: modules of 32 x 32 and a norm. For tests that read it
// thousands of times.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint_builder.h"

namespace prepack::testing {

// One for every output channel, in bf16; all differ.
inline std::vector<std::byte> TinyScales() {
  std::vector<std::byte> scales;
  for (uint8_t n = 0; n < 32; ++n) {
    scales.insert(scales.end(), {static_cast<std::byte>(4 * n), std::byte{0x3E}});
  }
  return scales;
}

// W4A16 in groups of 32, with scales that differ.
inline TestCheckpoint TinyModel(const std::vector<std::string>& modules) {
  TestCheckpoint model;
  model.config = Json::parse(R"({"quantization_config": {
      "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {
          "targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group",
                                             "group_size": 32, "symmetric": true}}}}})");
  for (const std::string& module : modules) {
    std::vector<std::byte> codes(32 * 16);
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 37 + i / 16);
    model.tensors.push_back({module + ".weight_packed", "I32", {32, 4}, codes});
    model.tensors.push_back({module + ".weight_scale", "BF16", {32, 1}, TinyScales()});
    model.tensors.push_back({module + ".weight_shape", "I64", {2}, Int64s({32, 32})});
  }
  model.tensors.push_back({"norm", "BF16", {2}, Hex("80 3f 80 3f")});
  return model;
}

// W8A8: a scale for every output channel, activations per token at run time.
inline TestCheckpoint TinyW8A8Model(const std::vector<std::string>& modules) {
  TestCheckpoint model;
  model.config = Json::parse(R"({"quantization_config": {
      "quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"g": {
          "targets": ["Linear"],
          "input_activations": {"num_bits": 8, "type": "int", "strategy": "token",
                                "symmetric": true, "dynamic": true},
          "weights": {"num_bits": 8, "type": "int", "strategy": "channel",
                      "symmetric": true}}}}})");
  for (const std::string& module : modules) {
    std::vector<std::byte> codes(size_t{32} * 32);
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::byte>(static_cast<int>(i * 37 + i / 32) % 255 - 127);
    }
    model.tensors.push_back({module + ".weight", "I8", {32, 32}, codes});
    model.tensors.push_back({module + ".weight_scale", "BF16", {32, 1}, TinyScales()});
  }
  model.tensors.push_back({"norm", "BF16", {2}, Hex("80 3f 80 3f")});
  return model;
}

}  // namespace prepack::testing
