#pragma once

// A compressed-tensors checkpoint of one module whose bytes are those that the package wrote:
// N = 4, K = 16, groups of 8. Signed codes:
//     row 0: −8 … 7   row 1: 7 … −8   row 2: 1 −1 2 −2 … 7 −7 0 −8   row 3: 0
// Scales: (0.5 0.25) (1 2) (0.125 0.0625) (1.5 3).

#include <nlohmann/json.hpp>
#include <string>

#include "formats/checkpoint_builder.h"

namespace prepack::testing {

inline const std::string kExampleModule = "model.layers.0.mlp.up_proj";

inline Json ExampleConfig(bool symmetric) {
  return {{"tie_word_embeddings", true},
          {"quantization_config",
           {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"quantization_status", "compressed"},
            {"version", "0.19.0"},
            {"ignore", {"lm_head"}},
            {"config_groups",
             {{"group_0",
               {{"targets", {"Linear"}},
                {"weights",
                 {{"num_bits", 4},
                  {"type", "int"},
                  {"strategy", "group"},
                  {"group_size", 8},
                  {"symmetric", symmetric}}}}}}}}}};
}

inline TestCheckpoint SymmetricExample() {
  TestCheckpoint checkpoint;
  checkpoint.config = ExampleConfig(true);
  checkpoint.tensors = {
      {kExampleModule + ".weight_packed",
       "I32",
       {4, 2},
       Hex("10 32 54 76 98 ba dc fe  ef cd ab 89 67 45 23 01"
           "79 6a 5b 4c 3d 2e 1f 08  88 88 88 88 88 88 88 88")},
      {kExampleModule + ".weight_scale",
       "BF16",
       {4, 2},
       Hex("00 3f 80 3e 80 3f 00 40 00 3e 80 3d c0 3f 40 40")},
      {kExampleModule + ".weight_shape", "I64", {2}, Int64s({4, 16})},
      {"model.norm.weight", "BF16", {2}, Hex("80 3f 80 3f")},
  };
  return checkpoint;
}

// The same codes with zero points (0 −8) (7 1) (−1 2) (3 −3).
inline TestCheckpoint AsymmetricExample() {
  TestCheckpoint checkpoint = SymmetricExample();
  checkpoint.config = ExampleConfig(false);
  checkpoint.tensors.push_back(
      {kExampleModule + ".weight_zero_point", "I32", {1, 2}, Hex("f8 b7 00 00 90 5a 00 00")});
  return checkpoint;
}

// The args of the only group.
inline Json& ExampleWeights(TestCheckpoint& checkpoint) {
  return checkpoint.config["quantization_config"]["config_groups"]["group_0"]["weights"];
}

}  // namespace prepack::testing
