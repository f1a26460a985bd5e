#include "prepack/kernels/byte_codes.h"

#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("signed bytes become unsigned codes, and those that do not fit are noticed") {
  const std::vector<uint8_t> bytes = {0xF8, 0xFF, 0x00, 0x07, 0x01};  // −8 −1 0 7 1
  std::vector<uint8_t> codes(5);
  CHECK(OffsetBytes(bytes.data(), 5, 8, 15, codes.data()));
  CHECK(codes == std::vector<uint8_t>{0, 7, 8, 15, 9});
  std::vector<uint8_t> nibbles(3);
  CHECK(OffsetBytesToNibbles(bytes.data(), 5, 8, 15, nibbles.data()));
  CHECK(nibbles == std::vector<uint8_t>{0x70, 0xF8, 0x09});
  CHECK(OffsetBytes(bytes.data(), 5, 128, 255, codes.data()));
  CHECK(codes == std::vector<uint8_t>{120, 127, 128, 135, 129});
  for (const uint8_t bad : {uint8_t{0x08}, uint8_t{0xF7}, uint8_t{0x80}, uint8_t{0x7F}}) {
    for (size_t place = 0; place < 5; ++place) {
      std::vector<uint8_t> damaged = bytes;
      damaged[place] = bad;
      CHECK_FALSE(OffsetBytes(damaged.data(), 5, 8, 15, codes.data()));
      CHECK_FALSE(OffsetBytesToNibbles(damaged.data(), 5, 8, 15, nibbles.data()));
    }
  }
}

TEST_CASE("FP8 NaN is found wherever it is") {
  std::vector<uint8_t> codes(100);
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<uint8_t>(i % 2 == 0 ? 0x7E : 0xFE);
  CHECK_FALSE(HasF8NaN(codes.data(), codes.size()));
  for (const uint8_t nan : {uint8_t{0x7F}, uint8_t{0xFF}}) {
    for (size_t place = 0; place < codes.size(); place += 33) {
      std::vector<uint8_t> damaged = codes;
      damaged[place] = nan;
      CHECK(HasF8NaN(damaged.data(), damaged.size()));
    }
  }
}

}  // namespace
}  // namespace prepack::testing
