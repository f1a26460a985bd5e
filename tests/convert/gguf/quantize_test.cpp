#include "prepack/convert/gguf/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "catch.h"
#include "prepack/gguf/blocks.h"
#include "prepack/gguf/model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

using gguf::GgmlType;

std::vector<std::byte> StoredBytes(const gguf::Model& model, std::string_view name) {
  const gguf::Tensor* tensor = model.FindTensor(name);
  REQUIRE(tensor != nullptr);
  std::vector<std::byte> bytes(tensor->bytes);
  RequireOk(model.Visit(*tensor, 0, tensor->bytes, [&](const std::byte* stored) {
    std::memcpy(bytes.data(), stored, bytes.size());
  }));
  return bytes;
}

TEST_CASE("weights are quantized to the bytes that the Python package gguf makes of them") {
  const gguf::Model blocks = Value(gguf::Model::Open(Fixture("gguf/blocks.gguf")));
  const std::vector<std::byte> floats = StoredBytes(blocks, "F32.quantized");
  std::vector<float> weights(floats.size() / sizeof(float));
  gguf::Dequantize(GgmlType::kF32, floats, weights);
  std::vector<std::byte> quantized(weights.size() / 32 * 34);
  gguf::Rounded rounded;
  RequireOk(gguf::QuantizeQ8_0(weights, quantized.data(), rounded));
  CHECK(quantized == StoredBytes(blocks, "Q8_0.quantized"));
  CHECK(rounded.quantized == weights.size());
  std::vector<float> stored(weights.size());
  gguf::Dequantize(GgmlType::kQ8_0, quantized, stored);
  double noise = 0;
  double signal = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    noise += std::pow(double{weights[i]} - stored[i], 2);
    signal += std::pow(double{weights[i]}, 2);
  }
  CHECK(std::abs(rounded.sqnr() - 10 * std::log10(signal / noise)) < 1e-9);
}

std::vector<std::byte> Quantized(std::vector<float> weights, gguf::Rounded& rounded) {
  weights.resize(32);
  std::vector<std::byte> block(34);
  RequireOk(gguf::QuantizeQ8_0(weights, block.data(), rounded));
  return block;
}

TEST_CASE("halves are rounded away from zero") {
  gguf::Rounded rounded;
  const std::vector<std::byte> block = Quantized({127, 0.5F, -0.5F, 2.5F, -126.5F, 0.25F}, rounded);
  CHECK(block[1] == std::byte{0x3C});  // 1 in f16
  const std::vector<int> expected = {127, 1, -1, 3, -127, 0};
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(static_cast<int8_t>(block[2 + i]) == expected[i]);
  }
  CHECK(rounded.noise == 4 * 0.25 + 0.0625);
}

TEST_CASE("zeros and numbers below all scales become zeros, and too large ones are refused") {
  gguf::Rounded zeros;
  CHECK(Quantized({0, -0.0F}, zeros) == std::vector<std::byte>(34));
  CHECK(zeros.sqnr() == std::numeric_limits<double>::infinity());
  gguf::Rounded tiny;
  CHECK(Quantized({1e-38F, -1e-44F}, tiny) == std::vector<std::byte>(34));
  CHECK(tiny.any());
  std::vector<float> weights(32, 9e6F);
  std::vector<std::byte> block(34);
  CheckError(gguf::QuantizeQ8_0(weights, block.data(), tiny), ErrorKind::kUnsupported,
             "no scale that Q8_0 can store");
}

}  // namespace
}  // namespace prepack::testing
