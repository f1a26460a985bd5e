#include "prepack/layouts/parameters.h"

#include <vector>

#include "catch.h"
#include "prepack/base/float_convert.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

std::vector<uint16_t> Pack(DType dtype, uint64_t rows, const std::vector<float>& scales) {
  std::vector<uint16_t> packed(scales.size());
  const Status status =
      PackScaleStrip({.value = dtype, .stored = dtype},
                     {.rows = rows, .groups = scales.size() / rows, .width = rows}, scales,
                     std::as_writable_bytes(std::span(packed)));
  CHECK(status.ToString() == "");
  return packed;
}

TEST_CASE("scales are transposed and rounded to nearest even") {
  // 1 + 2^-8 lies halfway between two bf16 numbers; the even one is 1. 1 + 3 · 2^-8 goes up.
  CHECK(Pack(DType::kBF16, 2, {1.0F, 1.00390625F, -2.0F, 1.01171875F}) ==
        std::vector<uint16_t>{0x3F80, 0xC000, 0x3F80, 0x3F82});
  CHECK(Pack(DType::kF16, 2, {1.0F, 0.5F, 65504.0F, -0.0009765625F}) ==
        std::vector<uint16_t>{0x3C00, 0x7BFF, 0x3800, 0x9400});
}

TEST_CASE("subnormal scales are legal") {
  CHECK(Pack(DType::kF16, 1, {0x1p-24F}) == std::vector<uint16_t>{0x0001});
  CHECK(Pack(DType::kBF16, 1, {0x1p-133F}) == std::vector<uint16_t>{0x0001});
}

TEST_CASE("a scale that the dtype cannot hold is refused with its place") {
  const std::vector<float> scales = {1, 1, 1, 1, 70000, 1};
  std::vector<std::byte> packed(12);
  const Status over = PackScaleStrip({.value = DType::kF16, .stored = DType::kF16},
                                     {.rows = 3, .groups = 2, .width = 3}, scales, packed);
  REQUIRE_FALSE(over.ok());
  CHECK(over.kind() == ErrorKind::kUnsupported);
  CHECK(over.ToString() ==
        "scale of row 2, group 0: F16 cannot hold it: it would become inf (found 70000). Choose "
        "activations of another dtype with --dtype");
  const Status under = PackScaleStrip({.value = DType::kF16, .stored = DType::kF32},
                                      {.rows = 1, .groups = 1, .width = 1},
                                      std::vector<float>{1e-9F}, std::span(packed).first(4));
  REQUIRE_FALSE(under.ok());
  CHECK(under.what() == "F16 cannot hold it: it would become 0");
}

TEST_CASE("unpacking widens exactly and transposes back") {
  const std::vector<uint16_t> packed = {0x3F80, 0xC000, 0x0001, 0x3F82};  // [G 2, rows 2]
  std::vector<float> scales(4);
  UnpackScaleStrip({.value = DType::kBF16, .stored = DType::kBF16},
                   {.rows = 2, .groups = 2, .width = 2}, std::as_bytes(std::span(packed)), scales);
  CHECK(scales == std::vector<float>{1.0F, 0x1p-133F, -2.0F, 1.015625F});
}

TEST_CASE("a scale can be rounded to one dtype and stored in another") {
  std::vector<float> packed(2);
  CHECK(PackScaleStrip(
            {.value = DType::kBF16, .stored = DType::kF32}, {.rows = 1, .groups = 2, .width = 1},
            std::vector<float>{1.00390625F, 1.01171875F}, std::as_writable_bytes(std::span(packed)))
            .ok());
  CHECK(packed == std::vector<float>{1.0F, 1.015625F});
}

TEST_CASE("scales can lie in blocks of some output channels") {
  // [rows 4, G 2] in blocks of two rows: [2, G, 2]
  std::vector<float> packed(8);
  CHECK(PackScaleStrip(
            {.value = DType::kF32, .stored = DType::kF32}, {.rows = 4, .groups = 2, .width = 2},
            std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, std::as_writable_bytes(std::span(packed)))
            .ok());
  CHECK(packed == std::vector<float>{1, 3, 2, 4, 5, 7, 6, 8});
}

TEST_CASE("exponents are stored for powers of two, and nothing else is taken for one") {
  const ScaleDTypes as{.value = DType::kF8E8M0, .stored = DType::kU8};
  const std::vector<float> scales = {1.0F, 0x1p-127F, 0x1p-126F, 0x1p127F, 0.5F, 2.0F};
  std::vector<std::byte> packed(scales.size());
  RequireOk(PackScaleStrip(as, {.rows = 2, .groups = 3, .width = 2}, scales, packed));
  CHECK(packed == std::vector<std::byte>{std::byte{127}, std::byte{254}, std::byte{0},
                                         std::byte{126}, std::byte{1}, std::byte{128}});
  std::vector<float> back(scales.size());
  UnpackScaleStrip(as, {.rows = 2, .groups = 3, .width = 2}, packed, back);
  CHECK(back == scales);
  for (const float bad : {3.0F, -1.0F, 0.0F, 0x1p-128F}) {
    const std::vector<float> other = {1.0F, bad};
    CheckError(PackScaleStrip(as, {.rows = 2, .groups = 1, .width = 2}, other, packed),
               ErrorKind::kUnsupported, "scale of row 1, group 0: F8_E8M0 cannot hold it");
  }
}

TEST_CASE("zero points are nibbles or bytes") {
  const std::vector<uint8_t> zero_points = {1, 2, 3, 4};  // [rows 2, G 2]
  const ParameterStrip strip = {.rows = 2, .groups = 2, .width = 2};
  std::vector<std::byte> nibbles(2);
  PackZeroNibbles(strip, zero_points, nibbles);
  CHECK(nibbles == std::vector<std::byte>{std::byte{0x31}, std::byte{0x42}});
  std::vector<std::byte> bytes(4);
  PackZeroBytes(strip, zero_points, bytes);
  CHECK(bytes == std::vector<std::byte>{std::byte{1}, std::byte{3}, std::byte{2}, std::byte{4}});
}

TEST_CASE("rounding alone leaves f32 as it is") {
  CHECK(RoundTo(DType::kBF16, 1.00390625F) == 1.0F);
  CHECK(RoundTo(DType::kF16, 1.00390625F) == 1.00390625F);
  CHECK(RoundTo(DType::kF32, 1.000000119F) == 1.000000119F);
}

}  // namespace
}  // namespace prepack::testing
