#pragma once

// The element types of a safetensors file (mirrors enum Dtype of safetensors 0.8,
// safetensors/src/tensor.rs), sub-byte ones included.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace prepack {

enum class DType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

// The name in a safetensors header, e.g. "BF16".
std::string_view DTypeName(DType dtype);
// nullopt for a name that no known version of the format has.
std::optional<DType> DTypeFromName(std::string_view name);
// All names in one line, for error messages.
std::string_view AllDTypeNames();

// Bits per element: 4, 6, 8, 16, 32 or 64.
uint32_t DTypeBits(DType dtype);

// Bytes of a tensor; nullopt when the product overflows or does not end on a byte.
std::optional<uint64_t> TensorBytes(DType dtype, std::span<const uint64_t> shape);

}  // namespace prepack
