#include "prepack/base/checked.h"

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST_CASE("CheckedAdd gives the sum or nothing") {
  CHECK(CheckedAdd(2, 3) == 5U);
  CHECK(CheckedAdd(kMax, 0) == kMax);
  CHECK(CheckedAdd(kMax - 7, 7) == kMax);
  CHECK_FALSE(CheckedAdd(kMax, 1).has_value());
  CHECK_FALSE(CheckedAdd(kMax, kMax).has_value());
}

TEST_CASE("CheckedMul gives the product or nothing") {
  CHECK(CheckedMul(6, 7) == 42U);
  CHECK(CheckedMul(kMax, 1) == kMax);
  CHECK(CheckedMul(kMax, 0) == 0U);
  CHECK(CheckedMul(1ULL << 32, (1ULL << 32) - 1) == kMax - ((1ULL << 32) - 1));
  CHECK_FALSE(CheckedMul(1ULL << 32, 1ULL << 32).has_value());
  CHECK_FALSE(CheckedMul(kMax, 2).has_value());
}

TEST_CASE("CheckedProduct multiplies the dimensions of a shape") {
  const auto product = [](std::vector<uint64_t> dims) { return CheckedProduct(dims); };
  CHECK(product({}) == 1U);
  CHECK(product({5}) == 5U);
  CHECK(product({2, 3, 4}) == 24U);
  CHECK(product({0}) == 0U);
  CHECK(product({7, 0, 9}) == 0U);
  CHECK(product({1ULL << 32, (1ULL << 32) - 1}) == kMax - ((1ULL << 32) - 1));
  CHECK_FALSE(product({1ULL << 32, 1ULL << 32}).has_value());
  CHECK_FALSE(product({3, kMax / 2}).has_value());
}

TEST_CASE("CheckedProduct reports overflow on either side of a zero") {
  const auto product = [](std::vector<uint64_t> dims) { return CheckedProduct(dims); };
  CHECK_FALSE(product({kMax, 2, 0}).has_value());
  CHECK_FALSE(product({0, kMax, 2}).has_value());
  CHECK_FALSE(product({kMax, 0, 2}).has_value());
}

TEST_CASE("CheckedAlignUp rounds up to a multiple") {
  CHECK(CheckedAlignUp(0, 64) == 0U);
  CHECK(CheckedAlignUp(1, 64) == 64U);
  CHECK(CheckedAlignUp(64, 64) == 64U);
  CHECK(CheckedAlignUp(65, 64) == 128U);
  CHECK(CheckedAlignUp(10, 3) == 12U);
  CHECK(CheckedAlignUp(kMax - 63, 64) == kMax - 63);
  CHECK_FALSE(CheckedAlignUp(kMax - 62, 64).has_value());
  CHECK_FALSE(CheckedAlignUp(kMax, 4096).has_value());
}

TEST_CASE("CeilDiv rounds up and does not overflow") {
  STATIC_REQUIRE(CeilDiv(0, 8) == 0);
  STATIC_REQUIRE(CeilDiv(1, 8) == 1);
  STATIC_REQUIRE(CeilDiv(8, 8) == 1);
  STATIC_REQUIRE(CeilDiv(9, 8) == 2);
  STATIC_REQUIRE(CeilDiv(kMax, 2) == (1ULL << 63));
  STATIC_REQUIRE(CeilDiv(kMax, 1) == kMax);
}

TEST_CASE("bytes are the same if each of them is, whatever their number and place") {
  for (size_t size = 0; size < 200; ++size) {
    CAPTURE(size);
    std::vector<std::byte> a(size + 1, std::byte{0x5A});
    const std::span<const std::byte> shifted = std::span<const std::byte>(a).subspan(1);
    std::vector<std::byte> b(size, std::byte{0x5A});
    CHECK(SameBytes(shifted, b));
    CHECK_FALSE(SameBytes(a, b));
    for (std::byte& byte : b) {
      byte ^= std::byte{0x80};
      CHECK_FALSE(SameBytes(shifted, b));
      byte ^= std::byte{0x80};
    }
  }
}

}  // namespace
}  // namespace prepack::testing
