#ifndef PREPACK_TESTS_GEMM_GOLDEN_GEMM_FILE_H_
#define PREPACK_TESTS_GEMM_GOLDEN_GEMM_FILE_H_

// Reads what the GEMM tests need of fixtures/golden/: operands in canonical form, and what the
// real op computed from them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/float_convert.h"
#include "gemm/engine.h"
#include "golden_file.h"

namespace prepack::testing {

struct GoldenGemm {
  std::string name;
  uint64_t m = 0;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t groups = 0;
  std::vector<float> x;              // [M, K]
  std::vector<std::byte> codes;      // [N, K / 2]
  std::vector<float> scales;         // [N, G], as the op reads them: rounded to bf16
  std::vector<uint8_t> zero_points;  // [N, G]; empty when symmetric
  std::vector<uint16_t> y;           // [M, N], bf16 bits

  W4A16Problem Problem() const {
    return {.m = m,
            .n = n,
            .k = k,
            .group_size = k / groups,
            .x = x,
            .codes = codes,
            .scales = scales,
            .zero_points = zero_points};
  }

  // The weights in f64, before any rounding.
  std::vector<double> Weights() const {
    std::vector<double> w(n * k);
    for (uint64_t i = 0; i < w.size(); ++i) {
      const auto pair = std::to_integer<int>(codes[i / 2]);
      const uint64_t group = i / (k / groups);
      const int zero = zero_points.empty() ? 8 : zero_points[group];
      w[i] = ((i % 2 == 0 ? pair & 15 : pair >> 4) - zero) * static_cast<double>(scales[group]);
    }
    return w;
  }
};

// Nothing for a file with other activations or scales than bf16, or with a bias.
inline std::optional<GoldenGemm> ReadGoldenGemm(const std::filesystem::path& path) {
  const GoldenFile file(path);
  if (file.At("x").dtype != DType::kBF16 || file.Has("bias") ||
      file.At("packed.weight_scale").dtype != DType::kBF16) {
    return std::nullopt;
  }
  GoldenGemm golden;
  golden.name = path.stem().string();
  golden.m = file.At("x").shape[0];
  golden.n = file.n();
  golden.k = file.k();
  golden.groups = file.At("scales").shape[1];
  for (const uint16_t bits : file.Values<uint16_t>("x")) golden.x.push_back(BF16ToF32(bits));
  golden.codes = file.Panel();
  for (const float scale : file.Values<float>("scales")) {
    golden.scales.push_back(BF16ToF32(F32ToBF16(scale)));
  }
  if (file.Has("zero_points")) golden.zero_points = file.Values<uint8_t>("zero_points");
  golden.y = file.Values<uint16_t>("y");
  return golden;
}

// The files of fixtures/golden/ of one layout that speak of what the engines do: bf16 activations
// and scales, and no bias. In the order of their names.
inline std::vector<GoldenGemm> ReadGoldenGemms(const std::string& prefix) {
  std::vector<GoldenGemm> goldens;
  for (const std::filesystem::path& path : GoldenFiles()) {
    if (!path.filename().string().starts_with(prefix)) continue;
    if (auto golden = ReadGoldenGemm(path)) goldens.push_back(*std::move(golden));
  }
  return goldens;
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_GEMM_GOLDEN_GEMM_FILE_H_
