#pragma once

// AWQ modules packed code by code, straight from the positions in the description of the format,
// with nothing in common with the readers' kernels.

#include <string>
#include <vector>

#include "formats/checkpoint_builder.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"

namespace prepack::testing {

inline const std::string kAwqModule = "model.layers.0.mlp.up_proj";

// What a module means.
struct AwqNumbers {
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t group_size = 0;
  std::vector<uint8_t> codes = {};        // [N, K]
  std::vector<uint8_t> zero_points = {};  // [N, G]
  std::vector<uint16_t> scales = {};      // [N, G], f16

  uint64_t groups() const { return k / group_size; }
};

inline AwqNumbers RandomAwqNumbers(uint64_t n, uint64_t k, uint64_t group_size, SplitMix64& random,
                                   bool symmetric = false) {
  AwqNumbers numbers{.n = n, .k = k, .group_size = group_size};
  for (uint64_t i = 0; i < n * k; ++i) {
    numbers.codes.push_back(static_cast<uint8_t>(random.Below(16)));
  }
  for (uint64_t i = 0; i < n * numbers.groups(); ++i) {
    numbers.zero_points.push_back(symmetric ? 8 : static_cast<uint8_t>(random.Below(16)));
    const double magnitude = 0.001 + random.Uniform();
    numbers.scales.push_back(
        F32ToF16(static_cast<float>(random.Below(2) == 0 ? magnitude : -magnitude)));
  }
  return numbers;
}

// The bytes of a tensor of 4-bit fields.
class Nibbles {
 public:
  explicit Nibbles(uint64_t count) : bytes_(count / 2) {}
  // The nibble at bits 4·index … of the little-endian bytes.
  void Put(uint64_t index, uint8_t value) {
    bytes_.at(index / 2) |= static_cast<std::byte>(index % 2 == 0 ? value : value << 4);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// [rows, cols] of f16, `value(row, col)` giving the bits.
template <typename Value>
std::vector<std::byte> Halves(uint64_t rows, uint64_t cols, Value value) {
  std::vector<std::byte> bytes;
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t col = 0; col < cols; ++col) {
      const uint16_t bits = value(row, col);
      bytes.push_back(static_cast<std::byte>(bits & 0xFFU));
      bytes.push_back(static_cast<std::byte>(bits >> 8));
    }
  }
  return bytes;
}

inline uint64_t GemmNibble(uint64_t n) {
  constexpr std::array<uint64_t, 8> kPosition = {0, 4, 1, 5, 2, 6, 3, 7};
  return n / 8 * 8 + kPosition[n % 8];
}

inline std::vector<TestTensor> AwqGemmTensors(const std::string& module, const AwqNumbers& m) {
  Nibbles codes(m.n * m.k);
  Nibbles zeros(m.n * m.groups());
  for (uint64_t n = 0; n < m.n; ++n) {
    for (uint64_t k = 0; k < m.k; ++k) codes.Put(k * m.n + GemmNibble(n), m.codes[n * m.k + k]);
    for (uint64_t g = 0; g < m.groups(); ++g) {
      zeros.Put(g * m.n + GemmNibble(n), m.zero_points[n * m.groups() + g]);
    }
  }
  return {{module + ".qweight", "I32", {m.k, m.n / 8}, codes.bytes()},
          {module + ".qzeros", "I32", {m.groups(), m.n / 8}, zeros.bytes()},
          {module + ".scales",
           "F16",
           {m.groups(), m.n},
           Halves(m.groups(), m.n,
                  [&](uint64_t g, uint64_t n) { return m.scales[n * m.groups() + g]; })}};
}

// The number of groups with padding, as the table of the format gives it.
inline uint64_t PaddedGroups(const AwqNumbers& m) {
  const uint64_t multiple = m.group_size == 32 ? 4 : m.group_size == 64 ? 2 : 1;
  uint64_t words = (m.groups() + 7) / 8;
  while (words % multiple != 0) ++words;
  return 8 * words;
}

inline std::vector<TestTensor> AwqGemvTensors(const std::string& module, const AwqNumbers& m) {
  const uint64_t padded = PaddedGroups(m);
  Nibbles codes(m.n * m.k);
  Nibbles zeros(m.n * padded);
  for (uint64_t n = 0; n < m.n; ++n) {
    for (uint64_t k = 0; k < m.k; ++k) codes.Put(n * m.k + k, m.codes[n * m.k + k]);
    for (uint64_t g = 0; g < m.groups(); ++g) {
      zeros.Put(n * padded + g, m.zero_points[n * m.groups() + g]);
    }
  }
  return {
      {module + ".qweight", "I32", {m.n, m.k / 8}, codes.bytes()},
      {module + ".qzeros", "I32", {m.n, padded / 8}, zeros.bytes()},
      {module + ".scales", "F16", {m.n, padded}, Halves(m.n, padded, [&](uint64_t n, uint64_t g) {
         return g < m.groups() ? m.scales[n * m.groups() + g] : uint16_t{0};
       })}};
}

inline std::vector<TestTensor> AwqGemvFastTensors(const std::string& module, const AwqNumbers& m) {
  const uint64_t padded = PaddedGroups(m);
  Nibbles codes(m.n * m.k);
  for (uint64_t n = 0; n < m.n; ++n) {
    for (uint64_t k = 0; k < m.k; ++k) {
      const uint64_t column = 64 * (k / 64) + 16 * (n % 4) + 8 * (k / 32 % 2) + k % 8;
      codes.Put((n / 4 * m.k + column) * 4 + k % 32 / 8, m.codes[n * m.k + k]);
    }
  }
  const auto scale = [&](uint64_t g, uint64_t n) {
    return g < m.groups() ? m.scales[n * m.groups() + g] : uint16_t{0};
  };
  const auto product = [&](uint64_t g, uint64_t n) {
    if (g >= m.groups()) return uint16_t{0};
    const auto z = static_cast<float>(m.zero_points[n * m.groups() + g]);
    return F32ToF16(-F16ToF32(scale(g, n)) * z);
  };
  return {{module + ".qweight", "I16", {m.n / 4, m.k}, codes.bytes()},
          {module + ".qzeros", "F16", {padded, m.n}, Halves(padded, m.n, product)},
          {module + ".scales", "F16", {padded, m.n}, Halves(padded, m.n, scale)}};
}

inline TestCheckpoint AwqCheckpoint(const std::vector<TestTensor>& tensors,
                                    const std::string& version, uint64_t group_size,
                                    bool zero_point = true) {
  TestCheckpoint checkpoint;
  checkpoint.config = {{"quantization_config",
                        {{"quant_method", "awq"},
                         {"bits", 4},
                         {"group_size", group_size},
                         {"zero_point", zero_point},
                         {"version", version}}}};
  checkpoint.tensors = tensors;
  checkpoint.tensors.push_back({"model.norm.weight", "F16", {2}, Hex("00 3c 00 3c")});
  return checkpoint;
}

}  // namespace prepack::testing
