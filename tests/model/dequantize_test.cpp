#include "prepack/model/dequantized_linear.h"

#include <cmath>
#include <vector>

#include "catch.h"
#include "model/fixed_linear.h"

namespace prepack::testing {
namespace {

std::vector<float> Weights(const QuantizedLinear& linear, uint64_t n0, uint64_t rows) {
  std::vector<float> weights(rows * linear.k());
  DequantizeBuffers buffers;
  REQUIRE(DequantizeRows(linear, n0, rows, buffers, weights).ok());
  return weights;
}

TEST_CASE("nibbles of a short last group are scaled by it") {
  // Rows 1 2 3 and 15 0 8 in groups of 2: the second group of a row has one code.
  const FixedLinear linear({.code = CodeType::kU4, .bits = 4, .group_size = 2, .symmetric = false},
                           2, 3,
                           {std::byte{0x21}, std::byte{0x03}, std::byte{0x0F}, std::byte{0x08}},
                           {0.5F, 2, -1, 4}, {1, 0, 15, 9}, {});
  CHECK(linear.groups() == 2);
  CHECK(Weights(linear, 0, 2) == std::vector<float>{0, 0.5F, 6, 0, 15, -4});
  CHECK(Weights(linear, 1, 1) == std::vector<float>{0, 15, -4});
}

TEST_CASE("weights come in the order of the checkpoint") {
  // Canonical columns 0 … 3 are the checkpoint's 2, 0, 3, 1.
  const FixedLinear linear({.code = CodeType::kU8, .bits = 8, .group_size = 2}, 1, 4,
                           {std::byte{129}, std::byte{130}, std::byte{131}, std::byte{132}},
                           {1, 10}, {128, 128}, {2, 0, 3, 1});
  CHECK(Weights(linear, 0, 1) == std::vector<float>{2, 40, 1, 30});
}

TEST_CASE("some input channels of the checkpoint come with their groups") {
  const Scheme scheme{.code = CodeType::kU4, .bits = 4, .group_size = 2, .symmetric = false};
  // Canonical columns 0 … 4 are the checkpoint's 3, 0, 4, 1, 2.
  const std::vector<std::byte> codes = {std::byte{0x21}, std::byte{0x43}, std::byte{0x05}};
  const FixedLinear linear(scheme, 1, 5, codes, {1, 10, 100}, {0, 1, 2}, {3, 0, 4, 1, 2});
  const FixedLinear other(scheme, 1, 5, codes, {1, 10, 100}, {0, 1, 2}, {0, 1, 2, 3, 4});
  CHECK(Weights(linear, 0, 1) == std::vector<float>{2, 30, 300, 1, 20});
  // What is kept from panel to panel is that of the last one.
  DequantizeBuffers buffers;
  std::vector<float> weights(2);
  REQUIRE(DequantizeInputs(linear, {.rows = 1, .k0 = 2, .cols = 2}, buffers, weights).ok());
  CHECK(weights == std::vector<float>{300, 1});
  REQUIRE(DequantizeInputs(linear, {.rows = 1, .k0 = 0, .cols = 2}, buffers, weights).ok());
  CHECK(weights == std::vector<float>{2, 30});
  REQUIRE(DequantizeInputs(other, {.rows = 1, .k0 = 0, .cols = 2}, buffers, weights).ok());
  CHECK(weights == std::vector<float>{1, 2});
  CHECK(DequantizeInputs(linear, {.rows = 1, .k0 = 0, .cols = 4}, buffers, weights).kind() ==
        ErrorKind::kUsage);
}

TEST_CASE("signed and FP8 codes have the values of their types") {
  const FixedLinear s8({.code = CodeType::kS8, .bits = 8, .group_size = 3}, 1, 3,
                       {std::byte{0x80}, std::byte{0xFF}, std::byte{0x7F}}, {0.5F}, {0}, {});
  CHECK(Weights(s8, 0, 1) == std::vector<float>{-64, -0.5F, 63.5F});
  const FixedLinear f8({.code = CodeType::kF8E4M3, .bits = 8, .group_size = 4}, 1, 4,
                       {std::byte{0x7E}, std::byte{0xB8}, std::byte{0x01}, std::byte{0x80}}, {2},
                       {0}, {});
  const std::vector<float> weights = Weights(f8, 0, 1);
  CHECK(weights == std::vector<float>{896, -2, 0.00390625F, 0});
  CHECK(std::signbit(weights[3]));
}

TEST_CASE("a buffer of another size is a mistake of the caller") {
  const FixedLinear linear({.code = CodeType::kU8, .bits = 8, .group_size = 1}, 1, 1,
                           {std::byte{1}}, {1}, {0}, {});
  std::vector<float> weights(2);
  DequantizeBuffers buffers;
  CHECK(DequantizeRows(linear, 0, 1, buffers, weights).kind() == ErrorKind::kUsage);
}

}  // namespace
}  // namespace prepack::testing
