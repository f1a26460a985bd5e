#include "base/checked.h"

#include <vector>

#include "catch.h"

namespace prepack {
namespace {

constexpr uint64_t kMax = UINT64_MAX;

TEST_CASE("sums and products that overflow are nothing") {
  CHECK(CheckedAdd(kMax - 1, 1) == kMax);
  CHECK_FALSE(CheckedAdd(kMax, 1).has_value());
  CHECK(CheckedMul(1ULL << 32, (1ULL << 32) - 1) == kMax - ((1ULL << 32) - 1));
  CHECK_FALSE(CheckedMul(1ULL << 32, 1ULL << 32).has_value());
}

TEST_CASE("a product of dimensions is checked, also behind a zero") {
  CHECK(CheckedProduct(std::vector<uint64_t>{}) == 1);
  CHECK(CheckedProduct(std::vector<uint64_t>{3, 5, 7}) == 105);
  CHECK(CheckedProduct(std::vector<uint64_t>{3, 0, 7}) == 0);
  CHECK_FALSE(CheckedProduct(std::vector<uint64_t>{1ULL << 33, 1ULL << 33}).has_value());
  CHECK_FALSE(CheckedProduct(std::vector<uint64_t>{0, 1ULL << 33, 1ULL << 33}).has_value());
}

TEST_CASE("rounding up") {
  CHECK(CheckedAlignUp(0, 64) == 0);
  CHECK(CheckedAlignUp(1, 64) == 64);
  CHECK(CheckedAlignUp(64, 64) == 64);
  CHECK_FALSE(CheckedAlignUp(kMax, 64).has_value());
  CHECK(CeilDiv(0, 7) == 0);
  CHECK(CeilDiv(7, 7) == 1);
  CHECK(CeilDiv(kMax, 2) == (1ULL << 63));
}

}  // namespace
}  // namespace prepack
