#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/layouts/layout.h"

namespace prepack::testing {

// Random packed bytes of onednn/w4a16 and onednn/w4a8: any nibbles are codes and zero points.
struct NibbleModule {
  std::vector<std::byte> weight;      // [K, N / 2]
  std::vector<float> scale;           // [G, N]
  std::vector<std::byte> zero_point;  // [G, N / 2], or none
  std::vector<float> bias;            // [N]
  std::vector<float> x;               // [M, K], values of bf16
  PackedOperands packed;
  PackRequest request;

  NibbleModule(uint64_t m, uint64_t n, uint64_t k, uint64_t group_size, bool symmetric)
      : weight(k * n / 2), scale(k / group_size * n), bias(n), x(m * k) {
    SplitMix64 random(n * 1009 + k);
    for (std::byte& pair : weight) pair = static_cast<std::byte>(random.Below(256));
    if (!symmetric) zero_point.resize(k / group_size * n / 2);
    for (std::byte& pair : zero_point) pair = static_cast<std::byte>(random.Below(256));
    for (float& value : scale) value = static_cast<float>(1 + random.Below(100)) * 0x1p-10F;
    for (float& value : bias) value = static_cast<float>(random.Gaussian());
    for (float& value : x) value = BF16ToF32(F32ToBF16(static_cast<float>(random.Gaussian())));
    packed.n = n;
    packed.k = k;
    packed.group_size = group_size;
    packed.weight = weight;
    packed.scale = std::as_bytes(std::span(scale));
    packed.zero_point = zero_point;
    packed.bias = std::as_bytes(std::span(bias));
    request.n = n;
    request.k = k;
  }
  NibbleModule(const NibbleModule&) = delete;  // spans refer to the arrays
  NibbleModule& operator=(const NibbleModule&) = delete;
};

}  // namespace prepack::testing
