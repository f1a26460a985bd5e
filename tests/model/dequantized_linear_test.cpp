#include "prepack/model/dequantized_linear.h"

#include <cstring>

#include "catch.h"
#include "model/fixed_linear.h"

namespace prepack::testing {
namespace {

std::vector<uint16_t> Read(const QuantizedLinear& linear, const PanelRange& range) {
  std::vector<std::byte> bytes(PanelBytes(CodeType::kBF16, range));
  const Status status = linear.ReadCodes(range, bytes);
  INFO(status.ToString());
  REQUIRE(status.ok());
  std::vector<uint16_t> weights(bytes.size() / 2);
  std::memcpy(weights.data(), bytes.data(), bytes.size());
  return weights;
}

// Rows 1 2 3 4 and 15 0 8 7, one scale per row.
class Example final : public FixedLinear {
 public:
  explicit Example(float scale)
      : FixedLinear({.code = CodeType::kU4,
                     .bits = 4,
                     .granularity = Granularity::kChannel,
                     .group_size = 4},
                    2, 4, {std::byte{0x21}, std::byte{0x43}, std::byte{0x0F}, std::byte{0x78}},
                    {scale, 0.5F}, {8, 8}, {}) {}
};

TEST_CASE("a dequantized module has its weights in bf16, rounded to nearest even") {
  const Example source(1.00390625F);  // 1 + 2^-8: the weights need rounding
  const auto linear = Dequantized(source);
  CHECK(linear->scheme() == DequantizedScheme(2, 4));
  CHECK(linear->groups() == 1);
  // −7 · (1 + 2^-8) = −7.02734375, and bf16 has steps of 2^-5 there: −7.03125.
  CHECK(Read(*linear, {.n0 = 0, .rows = 2, .k0 = 0, .cols = 4}) ==
        std::vector<uint16_t>{0xC0E1, 0xC0C1, 0xC0A1, 0xC080, 0x4060, 0xC080, 0x0000, 0xBF00});
  CHECK(Read(*linear, {.n0 = 1, .rows = 1, .k0 = 1, .cols = 2}) ==
        std::vector<uint16_t>{0xC080, 0x0000});
  std::vector<float> scales(2);
  CHECK(linear->ReadScales(0, 2, scales).ok());
  CHECK(scales == std::vector<float>{1, 1});
  std::vector<uint8_t> zero_points(2, 9);
  CHECK(linear->ReadZeroPoints(0, 2, zero_points).ok());
  CHECK(zero_points == std::vector<uint8_t>{0, 0});
}

TEST_CASE("a dequantized module is in the order of the checkpoint's inputs") {
  const FixedLinear source({.code = CodeType::kU8, .bits = 8, .group_size = 2}, 1, 4,
                           {std::byte{129}, std::byte{130}, std::byte{131}, std::byte{132}},
                           {1, 10}, {128, 128}, {2, 0, 3, 1});
  const auto linear = Dequantized(source);
  CHECK_FALSE(linear->reordered());
  CHECK(Read(*linear, {.n0 = 0, .rows = 1, .k0 = 0, .cols = 4}) ==
        std::vector<uint16_t>{0x4000, 0x4220, 0x3F80, 0x41F0});  // 2 40 1 30
}

TEST_CASE("a weight that bf16 cannot hold is refused with its place") {
  const Example source(3.0e38F);
  const auto linear = Dequantized(source);
  std::vector<std::byte> bytes(4);
  const Status status = linear->ReadCodes({.n0 = 0, .rows = 1, .k0 = 1, .cols = 2}, bytes);
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kUnsupported);
  CHECK_THAT(status.ToString(), Catch::Contains("weight [0, 1]"));
}

TEST_CASE("panels and buffers that do not fit a dequantized module are refused") {
  const Example source(1);
  const auto linear = Dequantized(source);
  std::vector<std::byte> bytes(4);
  CHECK(linear->ReadCodes({.n0 = 2, .rows = 1, .k0 = 0, .cols = 2}, bytes).kind() ==
        ErrorKind::kUsage);
  CHECK(linear->ReadCodes({.n0 = 0, .rows = 1, .k0 = 3, .cols = 2}, bytes).kind() ==
        ErrorKind::kUsage);
  CHECK(linear->ReadCodes({.n0 = 0, .rows = 1, .k0 = 0, .cols = 3}, bytes).kind() ==
        ErrorKind::kUsage);
  std::vector<float> scales(3);
  CHECK(linear->ReadScales(0, 2, scales).kind() == ErrorKind::kUsage);
}

}  // namespace
}  // namespace prepack::testing
