#ifndef PREPACK_TESTS_GEMM_GOLDEN_GEMM_FILE_H_
#define PREPACK_TESTS_GEMM_GOLDEN_GEMM_FILE_H_

// Reads what the GEMM tests need of fixtures/golden/: operands in canonical form, and what the
// real op computed from them. Trusts the file, as only tests may.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/float_convert.h"
#include "gemm/engine.h"
#include "temp_folder.h"

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
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  uint64_t header_bytes = 0;
  std::copy_n(bytes.data(), sizeof header_bytes, reinterpret_cast<char*>(&header_bytes));
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  const auto dtype = [&](const char* name) {
    return header.at(name).at("dtype").get<std::string>();
  };
  if (dtype("x") != "BF16" || dtype("packed.weight_scale") != "BF16" || header.contains("bias")) {
    return std::nullopt;
  }
  const auto data = [&](const char* name) {
    const auto& offsets = header.at(name).at("data_offsets");
    const uint64_t begin = offsets[0];
    const uint64_t end = offsets[1];
    return std::as_bytes(std::span(bytes).subspan(8 + header_bytes + begin, end - begin));
  };
  const auto copy = [&](const char* name, auto& out) {
    const std::span<const std::byte> from = data(name);
    out.resize(from.size() / sizeof out[0]);
    std::copy(from.begin(), from.end(), std::as_writable_bytes(std::span(out)).begin());
  };

  GoldenGemm golden;
  golden.name = path.stem().string();
  golden.n = header.at("codes").at("shape")[0];
  golden.k = header.at("codes").at("shape")[1];
  golden.m = header.at("x").at("shape")[0];
  golden.groups = header.at("scales").at("shape")[1];
  std::vector<uint16_t> x;
  std::vector<uint8_t> codes;
  copy("x", x);
  copy("codes", codes);
  copy("scales", golden.scales);
  copy("y", golden.y);
  if (header.contains("zero_points")) copy("zero_points", golden.zero_points);
  for (const uint16_t bits : x) golden.x.push_back(BF16ToF32(bits));
  for (float& scale : golden.scales) scale = BF16ToF32(F32ToBF16(scale));
  for (size_t i = 0; i < codes.size(); i += 2) {
    golden.codes.push_back(static_cast<std::byte>(codes[i] | codes[i + 1] << 4));
  }
  return golden;
}

// The files of fixtures/golden/ of one layout that speak of what the engines do: bf16 activations
// and scales, and no bias. In the order of their names.
inline std::vector<GoldenGemm> ReadGoldenGemms(const std::string& prefix) {
  std::vector<GoldenGemm> goldens;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("golden"))) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    if (auto golden = ReadGoldenGemm(entry.path())) goldens.push_back(*std::move(golden));
  }
  std::sort(goldens.begin(), goldens.end(),
            [](const GoldenGemm& a, const GoldenGemm& b) { return a.name < b.name; });
  return goldens;
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_GEMM_GOLDEN_GEMM_FILE_H_
