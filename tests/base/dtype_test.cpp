#include "base/dtype.h"

#include <sstream>
#include <string>
#include <vector>

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("every dtype has one name and one width") {
  std::string names;
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(DTypeFromName(DTypeName(dtype)) == dtype);
    if (!names.empty()) names += ", ";
    names += DTypeName(dtype);
  }
  CHECK(names == AllDTypeNames());
  CHECK(DTypeBits(DType::kF4) == 4);
  CHECK(DTypeBits(DType::kF6E2M3) == 6);
  CHECK(DTypeBits(DType::kF8E8M0) == 8);
  CHECK(DTypeBits(DType::kBF16) == 16);
  CHECK(DTypeBits(DType::kC64) == 64);
  for (const char* name : {"", "bf16", "BF17", "F8_E4M3 ", "I4"}) {
    CHECK_FALSE(DTypeFromName(name).has_value());
  }
}

TEST_CASE("the size of a tensor is checked") {
  const auto bytes = [](DType dtype, std::vector<uint64_t> shape) {
    return TensorBytes(dtype, shape);
  };
  CHECK(bytes(DType::kI32, {4, 8}) == 128);
  CHECK(bytes(DType::kF32, {}) == 4);
  CHECK(bytes(DType::kF64, {0, 5}) == 0);
  CHECK(bytes(DType::kF4, {3, 2}) == 3);
  CHECK_FALSE(bytes(DType::kF4, {3}).has_value());  // ends inside a byte
  CHECK(bytes(DType::kF6E3M2, {4}) == 3);
  CHECK_FALSE(bytes(DType::kF6E3M2, {3}).has_value());
  CHECK_FALSE(bytes(DType::kU8, {1ULL << 62}).has_value());  // in bits it overflows
}

}  // namespace
}  // namespace prepack
