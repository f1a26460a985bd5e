#include "prepack/base/dtype.h"

#include <string>
#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  uint32_t bits;
};

// Written down from the format's definition, not from the table under test.
constexpr Row kRows[] = {
    {DType::kBool, "BOOL", 8},
    {DType::kF4, "F4", 4},
    {DType::kF6E2M3, "F6_E2M3", 6},
    {DType::kF6E3M2, "F6_E3M2", 6},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {DType::kI16, "I16", 16},
    {DType::kU16, "U16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBF16, "BF16", 16},
    {DType::kI32, "I32", 32},
    {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},
    {DType::kC64, "C64", 64},
    {DType::kF64, "F64", 64},
    {DType::kI64, "I64", 64},
    {DType::kU64, "U64", 64},
};

TEST_CASE("every dtype has its name and size") {
  std::string all;
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    CHECK(DTypeName(row.dtype) == row.name);
    CHECK(DTypeBits(row.dtype) == row.bits);
    CHECK(DTypeFromName(row.name) == row.dtype);
    all += (all.empty() ? "" : ", ") + std::string(row.name);
  }
  CHECK(AllDTypeNames() == all);
}

TEST_CASE("names of dtypes are matched exactly") {
  for (const std::string_view name : {"", "bf16", "BF16 ", " BF16", "F128", "FLOAT", "I4"}) {
    CAPTURE(name);
    CHECK_FALSE(DTypeFromName(name).has_value());
  }
  CHECK_FALSE(DTypeFromName(std::string_view("U8\0", 3)).has_value());
}

TEST_CASE("TensorBytes multiplies shape and element size") {
  const auto bytes = [](DType dtype, std::vector<uint64_t> shape) {
    return TensorBytes(dtype, shape);
  };
  CHECK(bytes(DType::kF32, {}) == 4U);
  CHECK(bytes(DType::kBF16, {3, 5}) == 30U);
  CHECK(bytes(DType::kI64, {0, 5}) == 0U);
  CHECK(bytes(DType::kF4, {2}) == 1U);
  CHECK(bytes(DType::kF6E2M3, {4}) == 3U);
}

TEST_CASE("TensorBytes refuses what does not end on a byte") {
  const std::vector<uint64_t> three = {3};
  CHECK_FALSE(TensorBytes(DType::kF4, three).has_value());
  CHECK_FALSE(TensorBytes(DType::kF6E3M2, three).has_value());
}

TEST_CASE("TensorBytes refuses overflow of the elements and of the bits") {
  const std::vector<uint64_t> elements = {1ULL << 40, 1ULL << 40};
  const std::vector<uint64_t> bits = {1ULL << 60};  // fits as a count, and times 16 no longer
  CHECK_FALSE(TensorBytes(DType::kU8, elements).has_value());
  CHECK_FALSE(TensorBytes(DType::kBF16, bits).has_value());
}

}  // namespace
}  // namespace prepack::testing
