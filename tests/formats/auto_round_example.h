#pragma once

// The model of 32 × 32 that AutoRound's own packers were run on: codes (k + n) mod 16, zero points
// 8, scales −0.1 for channel 0 and 0.05 for the others, one group.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/awq_example.h"
#include "formats/checkpoint_builder.h"

namespace prepack::testing {

inline const std::string kArModule = "model.layers.0.mlp.up_proj";

inline AwqNumbers ArNumbers() {
  AwqNumbers m{.n = 32, .k = 32, .group_size = 32};
  for (unsigned i = 0; i < 32 * 32; ++i) {
    m.codes.push_back(static_cast<uint8_t>((i / 32 + i % 32) % 16));
  }
  m.zero_points.assign(32, 8);
  m.scales.assign(32, 0x2A66);
  m.scales[0] = 0xAE66;
  return m;
}

// The same numbers in GPTQ's tensors; every byte of qzeros is `zeros`.
inline std::vector<TestTensor> ArGptqTensors(const std::string& module, const AwqNumbers& m,
                                             unsigned zeros) {
  std::vector<std::byte> words;
  for (uint64_t word = 0; word < m.k / 8; ++word) {
    for (uint64_t n = 0; n < m.n; ++n) {
      const uint8_t* codes = m.codes.data() + n * m.k + word * 8;
      for (size_t i = 0; i < 8; i += 2) {
        words.push_back(static_cast<std::byte>(codes[i] | codes[i + 1] << 4));
      }
    }
  }
  return {{module + ".qweight", "I32", {m.k / 8, m.n}, words},
          {module + ".qzeros",
           "I32",
           {m.groups(), m.n / 8},
           std::vector<std::byte>(m.groups() * m.n / 2, static_cast<std::byte>(zeros))},
          {module + ".scales",
           "F16",
           {m.groups(), m.n},
           Halves(m.groups(), m.n,
                  [&](uint64_t g, uint64_t n) { return m.scales[n * m.groups() + g]; })}};
}

inline TestCheckpoint ArCheckpoint(const std::vector<TestTensor>& tensors,
                                   const std::string& packing_format, bool sym) {
  TestCheckpoint checkpoint;
  checkpoint.config = {{"quantization_config",
                        {{"quant_method", "auto-round"},
                         {"bits", 4},
                         {"group_size", 32},
                         {"sym", sym},
                         {"data_type", "int"},
                         {"packing_format", packing_format}}}};
  checkpoint.tensors = tensors;
  checkpoint.tensors.push_back({"model.norm.weight", "F16", {2}, Hex("00 3c 00 3c")});
  return checkpoint;
}

inline TestCheckpoint ArGptq() {
  return ArCheckpoint(ArGptqTensors(kArModule, ArNumbers(), 0x77), "auto_round:auto_gptq", true);
}

inline TestCheckpoint ArAwq() {
  return ArCheckpoint(AwqGemmTensors(kArModule, ArNumbers()), "auto_round:auto_awq", true);
}

inline Json& ArConfig(TestCheckpoint& stored) {
  return stored.config["quantization_config"];
}

}  // namespace prepack::testing
