#include "prepack/model/panel.h"

#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("a panel holds two codes per byte and starts rows on bytes") {
  static_assert(PanelRowBytes(CodeType::kU4, 0) == 0);
  static_assert(PanelRowBytes(CodeType::kU4, 1) == 1);
  static_assert(PanelRowBytes(CodeType::kU4, 16) == 8);
  static_assert(PanelRowBytes(CodeType::kU4, 17) == 9);
  static_assert(PanelBytes(CodeType::kU4, {.n0 = 7, .rows = 3, .k0 = 2, .cols = 5}) == 9);
  static_assert(PanelBytes(CodeType::kU4, {.rows = 1024, .cols = 1U << 20}) == (1U << 29));
}

TEST_CASE("the even input channel is in the low half") {
  // Two rows of four codes: 1 2 3 4, 5 6 7 8.
  const std::vector<std::byte> panel = {std::byte{0x21}, std::byte{0x43}, std::byte{0x65},
                                        std::byte{0x87}};
  for (uint64_t row = 0; row < 2; ++row) {
    for (uint64_t col = 0; col < 4; ++col) {
      CHECK(PanelCode(CodeType::kU4, panel, 4, row, col) == 4 * row + col + 1);
    }
  }
}

TEST_CASE("an odd number of columns leaves the last half of a row unused") {
  const std::vector<std::byte> panel = {std::byte{0x21}, std::byte{0x03}, std::byte{0x54},
                                        std::byte{0x06}};
  CHECK(PanelCode(CodeType::kU4, panel, 3, 0, 2) == 3);
  CHECK(PanelCode(CodeType::kU4, panel, 3, 1, 0) == 4);
  CHECK(PanelCode(CodeType::kU4, panel, 3, 1, 2) == 6);
}

TEST_CASE("codes of 8 bits take a byte each") {
  for (const CodeType code : {CodeType::kU8, CodeType::kS8, CodeType::kF8E4M3}) {
    CHECK(PanelRowBytes(code, 17) == 17);
    CHECK(PanelBytes(code, {.n0 = 7, .rows = 3, .k0 = 2, .cols = 5}) == 15);
    const std::vector<std::byte> panel = {std::byte{1}, std::byte{2}, std::byte{0xFF},
                                          std::byte{4}, std::byte{5}, std::byte{6}};
    CHECK(PanelCode(code, panel, 3, 0, 2) == 0xFF);
    CHECK(PanelCode(code, panel, 3, 1, 0) == 4);
  }
}

}  // namespace
}  // namespace prepack::testing
