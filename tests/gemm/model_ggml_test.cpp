#include "prepack/gemm/model_ggml.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "golden_file.h"
#include "prepack/base/decibel.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/gguf/ggml_types.h"
#include "status_matchers.h"
#include "test_seed.h"

namespace prepack::testing {
namespace {

using enum gguf::GgmlType;

constexpr std::array kProductTypes = {kF32,   kF16,   kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0,
                                      kMXFP4, kNVFP4, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K};
constexpr std::array<uint64_t, 3> kProductInputs = {64, 96, 768};

// What ggml itself has computed (fixtures/make/bundled/ggml_products.py).
const GoldenFile& Products() {
  static const GoldenFile file(Fixture("gguf/products.safetensors"));
  return file;
}

template <typename T>
T NumberAt(const std::vector<std::byte>& bytes, size_t at) {
  T number{};
  REQUIRE(at + sizeof number <= bytes.size());
  std::memcpy(&number, &bytes[at], sizeof number);
  return number;
}

bool SameBits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Calls `check` with the type, K and the prefix of its tensors in the file.
template <typename Check>
void ForProducts(const Check& check) {
  std::set<gguf::GgmlType> seen;
  for (const gguf::GgmlType type : kProductTypes) {
    for (const uint64_t k : kProductInputs) {
      const std::string prefix = std::string(gguf::InfoOf(type).name) + "." + std::to_string(k);
      if (!Products().Has(prefix + ".weight")) continue;
      INFO(prefix);
      check(type, k, prefix);
      seen.insert(type);
    }
  }
  CHECK(seen.size() == kProductTypes.size());
}

GgmlActivations ActivationsFor(gguf::GgmlType type, uint64_t k) {
  const std::vector<float> x = Products().Values<float>(std::to_string(k) + ".x");
  return {GgmlOperandOf(type).value(), x, k};
}

GgmlWeights WeightsOf(gguf::GgmlType type, uint64_t k, const std::string& prefix) {
  const GoldenFile::Tensor& stored = Products().At(prefix + ".weight");
  GgmlWeights weights(type);
  const uint64_t rows = stored.shape[0];
  weights.Take(stored.bytes.data(), stored.bytes.size() / rows, rows, k);
  return weights;
}

TEST_CASE("activations are quantized as ggml quantizes them, to the bit") {
  ForProducts([](gguf::GgmlType type, uint64_t k, const std::string& prefix) {
    const std::vector<std::byte>& stored = Products().At(prefix + ".activations").bytes;
    const GgmlActivations x = ActivationsFor(type, k);
    const bool is_q8_k = x.operand() == GgmlOperand::kQ8_K;
    const uint64_t block = is_q8_k ? 256 : 32;
    const uint64_t codes_at = is_q8_k || x.operand() == GgmlOperand::kQ8_1 ? 4 : 2;
    const uint64_t bytes = is_q8_k ? 292 : codes_at + block;
    for (uint64_t row = 0; row < x.m(); ++row) {
      for (uint64_t i = 0; i < k; ++i) {
        INFO("row " << row << ", column " << i);
        if (!x.values(0).empty() && x.operand() == GgmlOperand::kF32) {
          REQUIRE(SameBits(x.values(row)[i], NumberAt<float>(stored, (row * k + i) * 4)));
        } else if (!x.values(0).empty()) {
          const auto bits = NumberAt<uint16_t>(stored, (row * k + i) * 2);
          const bool is_f16 = x.operand() == GgmlOperand::kF16;
          REQUIRE(SameBits(x.values(row)[i], is_f16 ? F16ToF32(bits) : BF16ToF32(bits)));
        } else {
          const uint64_t at = (row * k + i) / block * bytes;
          REQUIRE(x.codes(row)[i] == NumberAt<int8_t>(stored, at + codes_at + i % block));
          const float scale =
              is_q8_k ? NumberAt<float>(stored, at) : F16ToF32(NumberAt<uint16_t>(stored, at));
          REQUIRE(SameBits(x.scales(row)[i / block], scale));
          if (x.operand() != GgmlOperand::kQ8_1) continue;
          REQUIRE(SameBits(x.sums(row)[i / block], F16ToF32(NumberAt<uint16_t>(stored, at + 2))));
        }
      }
    }
  });
}

TEST_CASE("products are those of ggml's portable code, to the bit, and close to ggml_mul_mat's") {
  ForProducts([](gguf::GgmlType type, uint64_t k, const std::string& prefix) {
    const GgmlActivations x = ActivationsFor(type, k);
    const GgmlWeights weights = WeightsOf(type, k, prefix);
    std::vector<float> y(x.m() * weights.rows());
    weights.Multiply(x, y);
    const std::vector<float> portable = Products().Values<float>(prefix + ".portable");
    const std::vector<float> mul_mat = Products().Values<float>(prefix + ".mul_mat");
    REQUIRE(portable.size() == y.size());
    double signal = 0;
    double noise = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      INFO("output " << i << " is " << y[i] << ", " << portable[i] << " by ggml");
      REQUIRE(SameBits(y[i], portable[i]));
      const double error = static_cast<double>(y[i]) - static_cast<double>(mul_mat[i]);
      signal += static_cast<double>(mul_mat[i]) * static_cast<double>(mul_mat[i]);
      noise += error * error;
    }
    CHECK(Decibel(signal, noise).value() > 130);
  });
}

// In f64, weights and activations as numbers give what the integers give.
TEST_CASE("weights and activations as numbers have the same products") {
  ForProducts([](gguf::GgmlType type, uint64_t k, const std::string& prefix) {
    const GgmlActivations x = ActivationsFor(type, k);
    const GgmlWeights weights = WeightsOf(type, k, prefix);
    std::vector<float> y(x.m() * weights.rows());
    weights.Multiply(x, y);
    std::vector<double> of_x(x.columns());
    std::vector<double> w(x.columns());
    std::vector<float> singles(k);
    for (uint64_t m = 0; m < x.m(); ++m) {
      x.CopyRow(m, of_x);
      for (uint64_t n = 0; n < weights.rows(); ++n) {
        weights.CopyRow(n, std::span(w).first(k));
        weights.CopyRow(n, singles);
        weights.CopyMinima(n, std::span(w).subspan(k));
        double sum = 0;
        double largest = 0;
        for (size_t i = 0; i < w.size(); ++i) {
          sum += w[i] * of_x[i];
          largest += std::abs(w[i] * of_x[i]);
          if (i < k) REQUIRE(singles[i] == static_cast<float>(w[i]));
        }
        INFO("row " << m << ", output channel " << n);
        REQUIRE(std::abs(sum - static_cast<double>(y[m * weights.rows() + n])) <=
                (largest + std::abs(sum)) * 1e-5);
      }
    }
  });
}

TEST_CASE("a type without a model") {
  CHECK_FALSE(GgmlOperandOf(kIQ2_XS).has_value());
  CHECK_FALSE(GgmlOperandOf(kIQ4_NL).has_value());
  CHECK(GgmlOperandName(GgmlOperandOf(kQ5_1).value()) == "Q8_1");
  CHECK(GgmlOperandName(GgmlOperandOf(kQ3_K).value()) == "Q8_K");
  CHECK(GgmlOperandName(GgmlOperandOf(kBF16).value()) == "BF16");
}

// Part of the input channels of rows that lie further apart.
TEST_CASE("a slab of the input channels has the products of these") {
  SplitMix64 random(Seed(46));
  constexpr uint64_t kInputs = 512;
  constexpr uint64_t kSlab = 256;
  for (const gguf::GgmlType type : kProductTypes) {
    INFO(gguf::InfoOf(type).name);
    const gguf::GgmlTypeInfo& info = gguf::InfoOf(type);
    const uint64_t stride = kInputs / info.block * info.bytes;
    std::vector<std::byte> bytes(3 * stride);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(0x3C));
    std::vector<float> x(2 * kInputs);
    for (float& value : x) value = static_cast<float>(random.Gaussian());
    std::vector<float> slab;
    for (uint64_t row = 0; row < 2; ++row) {
      std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(row * kInputs), kSlab, 0.0F);
      const auto from = x.begin() + static_cast<std::ptrdiff_t>(row * kInputs + kSlab);
      slab.insert(slab.end(), from, from + kSlab);
    }
    GgmlWeights whole(type);
    whole.Take(bytes.data(), stride, 3, kInputs);
    GgmlWeights part(type);
    part.Take(bytes.data() + kSlab / info.block * info.bytes, stride, 3, kSlab);
    std::vector<float> expected(6);
    std::vector<float> found(6);
    whole.Multiply({GgmlOperandOf(type).value(), x, kInputs}, expected);
    part.Multiply({GgmlOperandOf(type).value(), slab, kSlab}, found);
    CHECK(found == expected);
  }
}

}  // namespace
}  // namespace prepack::testing
