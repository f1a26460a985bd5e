#pragma once

// A compressed-tensors checkpoint whose modules are large enough to be judged: [64, 128], 4 bits,
// groups of 32, weights of a bell curve, scales around 0.01; with the float weights it comes from.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/ct_example.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"

namespace prepack::testing {

inline constexpr uint64_t kWideN = 64;
inline constexpr uint64_t kWideK = 128;
inline constexpr uint64_t kWideGroup = 32;

inline std::string WideModule(int layer) {
  return "model.layers." + std::to_string(layer) + ".mlp.up_proj";
}

inline void PutBF16(std::vector<std::byte>& bytes, size_t index, float value) {
  const uint16_t bits = F32ToBF16(value);
  bytes[2 * index] = static_cast<std::byte>(bits & 0xFFU);
  bytes[2 * index + 1] = static_cast<std::byte>(bits >> 8);
}

// As many weights of a bell curve, in bf16.
inline std::vector<std::byte> WideValues(size_t count) {
  SplitMix64 random(77);
  std::vector<std::byte> bytes(2 * count);
  for (size_t i = 0; i < count; ++i)
    PutBF16(bytes, i, static_cast<float>(0.03 * random.Gaussian()));
  return bytes;
}

// Quantized as quantizers do: the largest weight of a group is the last code of the range.
inline void AddQuantized(TestCheckpoint& checkpoint, const std::string& module, uint64_t k,
                         const std::vector<double>& values, TestCheckpoint* baseline = nullptr) {
  const uint64_t n = values.size() / k;
  std::vector<std::byte> codes(values.size() / 2);
  std::vector<std::byte> scales(values.size() / kWideGroup * 2);
  std::vector<std::byte> weights(values.size() * 2);
  for (size_t group = 0; group < values.size() / kWideGroup; ++group) {
    const size_t first = group * kWideGroup;
    double largest = 0;
    for (size_t i = first; i < first + kWideGroup; ++i) {
      largest = std::max(largest, std::abs(values[i]));
    }
    const float scale = BF16ToF32(F32ToBF16(static_cast<float>(largest / 7.5)));
    PutBF16(scales, group, scale);
    for (size_t i = first; i < first + kWideGroup; ++i) {
      const int step = static_cast<int>(std::clamp(std::round(values[i] / scale), -8.0, 7.0));
      codes[i / 2] |= static_cast<std::byte>(static_cast<unsigned>(step + 8) << (i % 2 * 4));
      PutBF16(weights, i, static_cast<float>(values[i]));
    }
  }
  checkpoint.tensors.push_back({module + ".weight_packed", "I32", {n, k / 8}, codes});
  checkpoint.tensors.push_back({module + ".weight_scale", "BF16", {n, k / kWideGroup}, scales});
  checkpoint.tensors.push_back({module + ".weight_shape",
                                "I64",
                                {2},
                                Int64s({static_cast<int64_t>(n), static_cast<int64_t>(k)})});
  if (baseline != nullptr) {
    baseline->tensors.push_back({module + ".weight", "BF16", {n, k}, weights});
  }
}

// Weights of a bell curve.
inline void AddWideModule(TestCheckpoint& checkpoint, const std::string& module, uint64_t seed,
                          TestCheckpoint* baseline = nullptr, uint64_t n = kWideN) {
  SplitMix64 random(seed);
  std::vector<double> values(n * kWideK);
  for (double& value : values) value = 0.03 * random.Gaussian();
  AddQuantized(checkpoint, module, kWideK, values, baseline);
}

inline TestCheckpoint WideExample(int layers = 1, TestCheckpoint* baseline = nullptr) {
  TestCheckpoint checkpoint;
  checkpoint.config = ExampleConfig(true);
  checkpoint.config["hidden_size"] = kWideK;
  checkpoint.config["intermediate_size"] = kWideN;
  checkpoint.config["num_hidden_layers"] = layers;
  checkpoint.config["quantization_config"]["ignore"] = Json::array();
  ExampleWeights(checkpoint)["group_size"] = kWideGroup;
  for (int layer = 0; layer < layers; ++layer) {
    AddWideModule(checkpoint, WideModule(layer), static_cast<uint64_t>(layer) + 1, baseline);
  }
  return checkpoint;
}

}  // namespace prepack::testing
