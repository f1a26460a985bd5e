#pragma once

// GPTQ checkpoints of one module, packed by the plainest code there is: bit by bit.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "formats/checkpoint_builder.h"
#include "prepack/base/random.h"

namespace prepack::testing {

inline const std::string kGptqModule = "model.layers.0.mlp.up_proj";

struct GptqExample {
  uint64_t n = 8;
  uint64_t k = 32;
  uint32_t bits = 4;
  uint64_t group_size = 16;
  bool symmetric = true;
  bool stored_zeros = false;  // v2
  bool planar = false;
  std::vector<uint32_t> codes{};    // [K, N]
  std::vector<uint32_t> zeros{};    // [G, N]
  std::vector<uint16_t> scales{};   // F16 bits, [G, N]
  std::vector<int64_t> group_of{};  // [K]

  uint64_t groups() const { return (k + group_size - 1) / group_size; }

  // Fills what is above the shapes: random codes; zero points from `least_zero` on.
  void Randomize(uint64_t seed, uint32_t least_zero) {
    SplitMix64 random(seed);
    const uint32_t levels = 1U << bits;
    for (uint64_t i = 0; i < k * n; ++i) {
      codes.push_back(static_cast<uint32_t>(random.Below(levels)));
    }
    for (uint64_t i = 0; i < groups() * n; ++i) {
      const auto zero = least_zero + static_cast<uint32_t>(random.Below(levels - least_zero));
      zeros.push_back(symmetric ? levels / 2 : zero);
      // 0.5 … 1, some of them negative.
      scales.push_back(
          static_cast<uint16_t>(0x3800 + random.Below(0x400) + random.Below(2) * 0x8000));
    }
    for (uint64_t i = 0; i < k; ++i) group_of.push_back(static_cast<int64_t>(i / group_size));
  }
  // Scatters the groups over the channels.
  void Shuffle(uint64_t seed) {
    SplitMix64 random(seed);
    for (uint64_t i = k - 1; i > 0; --i) std::swap(group_of[i], group_of[random.Below(i + 1)]);
  }
};

// Words of `count` codes, code i at bits [b·i, b·i + b); in planes, per 32 codes, when planar.
inline std::vector<uint32_t> PackBits(const std::vector<uint32_t>& codes, uint32_t bits,
                                      bool planar) {
  const size_t words = planar ? (codes.size() + 31) / 32 * bits : (codes.size() * bits + 31) / 32;
  std::vector<uint32_t> packed(words + 1);
  for (size_t i = 0; i < codes.size(); ++i) {
    for (uint32_t bit = 0; bit < bits; ++bit) {
      size_t at = i * bits + bit;
      if (planar) {
        // The plane that the bit lies in: widths 8, 4, 2, 1 as the bits of `bits`, widest lowest.
        uint32_t below = 0;
        uint32_t width = 8;
        while ((bits & width) == 0 || bit >= below + width) {
          below += (bits & width) != 0 ? width : 0;
          width /= 2;
        }
        at = (i / 32 * bits + below) * 32 + i % 32 * width + (bit - below);
      }
      packed[at / 32] |= (codes[i] >> bit & 1U) << at % 32;
    }
  }
  packed.resize(words);
  return packed;
}

inline std::vector<std::byte> Words(const std::vector<uint32_t>& words) {
  std::vector<std::byte> bytes;
  for (const uint32_t word : words) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(word >> (8 * i) & 0xFFU));
  }
  return bytes;
}

inline TestCheckpoint MakeGptq(const GptqExample& x) {
  std::vector<std::vector<uint32_t>> columns;
  for (uint64_t n = 0; n < x.n; ++n) {
    std::vector<uint32_t> column;
    for (uint64_t k = 0; k < x.k; ++k) column.push_back(x.codes[k * x.n + n]);
    columns.push_back(PackBits(column, x.bits, x.planar));
  }
  std::vector<uint32_t> qweight;
  for (size_t row = 0; row < columns[0].size(); ++row) {
    for (const auto& column : columns) qweight.push_back(column[row]);
  }
  std::vector<uint32_t> qzeros;
  uint64_t zero_words = 0;
  for (uint64_t g = 0; g < x.groups(); ++g) {
    std::vector<uint32_t> row;
    for (uint64_t n = 0; n < x.n; ++n) {
      const uint32_t zero = x.zeros[g * x.n + n];
      row.push_back(x.stored_zeros ? zero : (zero - 1) & ((1U << x.bits) - 1));
    }
    const std::vector<uint32_t> packed = PackBits(row, x.bits, x.planar);
    zero_words = packed.size();
    qzeros.insert(qzeros.end(), packed.begin(), packed.end());
  }
  std::vector<std::byte> scales;
  for (const uint16_t scale : x.scales) {
    scales.push_back(static_cast<std::byte>(scale & 0xFFU));
    scales.push_back(static_cast<std::byte>(scale >> 8));
  }
  std::vector<uint32_t> g_idx;
  for (const int64_t group : x.group_of) g_idx.push_back(static_cast<uint32_t>(group));

  TestCheckpoint checkpoint;
  checkpoint.config["quantization_config"] = {{"quant_method", "gptq"},
                                              {"bits", x.bits},
                                              {"group_size", x.group_size},
                                              {"desc_act", false},
                                              {"sym", x.symmetric},
                                              {"checkpoint_format", x.planar         ? "gptq_p"
                                                                    : x.stored_zeros ? "gptq_v2"
                                                                                     : "gptq"}};
  checkpoint.tensors = {
      {kGptqModule + ".qweight", "I32", {columns[0].size(), x.n}, Words(qweight)},
      {kGptqModule + ".qzeros", "I32", {x.groups(), zero_words}, Words(qzeros)},
      {kGptqModule + ".scales", "F16", {x.groups(), x.n}, scales},
      {kGptqModule + ".g_idx", "I32", {x.k}, Words(g_idx)},
      {"model.norm.weight", "BF16", {2}, Hex("80 3f 80 3f")},
  };
  return checkpoint;
}

// Adds the same tensors once more, under another name.
inline void AddGptqModule(TestCheckpoint& checkpoint, const std::string& name,
                          const GptqExample& x) {
  for (TestTensor& tensor : MakeGptq(x).tensors) {
    if (!tensor.name.starts_with(kGptqModule)) continue;
    tensor.name.replace(0, kGptqModule.size(), name);
    checkpoint.tensors.push_back(tensor);
  }
}

// A sound symmetric module of N = 8, K = 32, two groups.
inline TestCheckpoint SmallGptq() {
  GptqExample x;
  x.Randomize(7, 1);
  return MakeGptq(x);
}

inline Json& GptqConfigOf(TestCheckpoint& checkpoint) {
  return checkpoint.config["quantization_config"];
}

}  // namespace prepack::testing
