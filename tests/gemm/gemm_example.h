#ifndef PREPACK_TESTS_GEMM_GEMM_EXAMPLE_H_
#define PREPACK_TESTS_GEMM_GEMM_EXAMPLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "gemm/engine.h"

namespace prepack::testing {

// A random problem and its result. Activations and scales are small powers of two and few products
// differ from zero, so every product, every sum in whatever order and every result is exact even
// with the 8 significant bits of bf16: engines must give these very numbers.
struct GemmExample {
  std::vector<float> x;
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  std::vector<float> y;  // what must come out
  W4A16Problem problem;

  GemmExample(uint64_t m, uint64_t n, uint64_t k, uint64_t group_size, bool symmetric)
      : x(m * k), codes(n * k / 2), scales(n * (k / group_size)), y(m * n) {
    SplitMix64 random(m * 1'000'003 + n * 1009 + k);
    // Three activations per row: 3 · 15 · 4 < 256.
    for (uint64_t row = 0; row < m; ++row) {
      for (int i = 0; i < 3; ++i) x[row * k + random.Below(k)] = random.Below(2) == 0 ? 1 : -1;
    }
    for (std::byte& pair : codes) pair = static_cast<std::byte>(random.Below(256));
    for (float& scale : scales) scale = static_cast<float>(1U << random.Below(3));
    if (!symmetric) {
      zero_points.resize(scales.size());
      for (uint8_t& zero_point : zero_points) zero_point = static_cast<uint8_t>(random.Below(16));
    }
    for (uint64_t row = 0; row < m; ++row) {
      for (uint64_t channel = 0; channel < n; ++channel) {
        for (uint64_t i = 0; i < k; ++i) {
          const auto pair = std::to_integer<int>(codes[(channel * k + i) / 2]);
          const uint64_t group = channel * (k / group_size) + i / group_size;
          const int step = (i % 2 == 0 ? pair & 15 : pair >> 4) -
                           (symmetric ? 8 : static_cast<int>(zero_points[group]));
          y[row * n + channel] += x[row * k + i] * static_cast<float>(step) * scales[group];
        }
      }
    }
    problem = {.m = m,
               .n = n,
               .k = k,
               .group_size = group_size,
               .x = x,
               .codes = codes,
               .scales = scales,
               .zero_points = zero_points};
  }
  GemmExample(const GemmExample&) = delete;  // `problem` refers to the arrays
  GemmExample& operator=(const GemmExample&) = delete;
};

struct GemmShape {
  uint64_t m;
  uint64_t n;
  uint64_t k;
  uint64_t group_size;
};

// Sizes on and off the blocks of kernels, one group and many. Groups are what oneDNN takes too.
inline constexpr GemmShape kGemmShapes[] = {
    {1, 1, 2, 2},    {1, 1, 128, 32},   {2, 7, 40, 40},    {3, 15, 96, 16},
    {4, 16, 64, 32}, {5, 17, 384, 128}, {16, 33, 256, 64}, {17, 160, 512, 128},
};

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_GEMM_GEMM_EXAMPLE_H_
