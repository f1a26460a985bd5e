#include "prepack/base/dtype.h"

#include <array>
#include <cstddef>

#include "prepack/base/checked.h"

namespace prepack {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  uint32_t bits;
};

// In the order of the enum: DTypeName and DTypeBits index it.
constexpr std::array kDTypes = {
    DTypeRow{DType::kBool, "BOOL", 8},
    DTypeRow{DType::kF4, "F4", 4},
    DTypeRow{DType::kF6E2M3, "F6_E2M3", 6},
    DTypeRow{DType::kF6E3M2, "F6_E3M2", 6},
    DTypeRow{DType::kU8, "U8", 8},
    DTypeRow{DType::kI8, "I8", 8},
    DTypeRow{DType::kF8E5M2, "F8_E5M2", 8},
    DTypeRow{DType::kF8E4M3, "F8_E4M3", 8},
    DTypeRow{DType::kF8E8M0, "F8_E8M0", 8},
    DTypeRow{DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    DTypeRow{DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    DTypeRow{DType::kI16, "I16", 16},
    DTypeRow{DType::kU16, "U16", 16},
    DTypeRow{DType::kF16, "F16", 16},
    DTypeRow{DType::kBF16, "BF16", 16},
    DTypeRow{DType::kI32, "I32", 32},
    DTypeRow{DType::kU32, "U32", 32},
    DTypeRow{DType::kF32, "F32", 32},
    DTypeRow{DType::kC64, "C64", 64},
    DTypeRow{DType::kF64, "F64", 64},
    DTypeRow{DType::kI64, "I64", 64},
    DTypeRow{DType::kU64, "U64", 64},
};

constexpr bool RowsFollowTheEnum() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsFollowTheEnum());

}  // namespace

std::string_view DTypeName(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].name;
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

std::string_view AllDTypeNames() {
  return "BOOL, F4, F6_E2M3, F6_E3M2, U8, I8, F8_E5M2, F8_E4M3, F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, "
         "I16, U16, F16, BF16, I32, U32, F32, C64, F64, I64, U64";
}

uint32_t DTypeBits(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].bits;
}

std::optional<uint64_t> TensorBytes(DType dtype, std::span<const uint64_t> shape) {
  const std::optional<uint64_t> elements = CheckedProduct(shape);
  if (!elements) return std::nullopt;
  const std::optional<uint64_t> bits = CheckedMul(*elements, DTypeBits(dtype));
  if (!bits || *bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

}  // namespace prepack
