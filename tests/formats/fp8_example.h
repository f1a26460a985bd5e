#ifndef PREPACK_TESTS_FORMATS_FP8_EXAMPLE_H_
#define PREPACK_TESTS_FORMATS_FP8_EXAMPLE_H_

// FP8 checkpoints of one module.

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

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_FORMATS_FP8_EXAMPLE_H_
