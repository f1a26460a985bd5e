#include "convert/small_parts.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <span>

#include "base/float_convert.h"

namespace prepack {
namespace {

template <typename T>
void Append(T value, std::vector<std::byte>& out) {
  const size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(&out[at], &value, sizeof value);
}

template <typename T>
T At(std::span<const std::byte> bytes, size_t index) {
  T value{};
  std::memcpy(&value, &bytes[index * sizeof value], sizeof value);
  return value;
}

float Widen(DType dtype, std::span<const std::byte> bytes, size_t index) {
  if (dtype == DType::kBF16) return BF16ToF32(At<uint16_t>(bytes, index));
  if (dtype == DType::kF16) return F16ToF32(At<uint16_t>(bytes, index));
  return At<float>(bytes, index);
}

// Appends `value` in `dtype`; false when that makes a finite number infinite.
bool AppendNarrow(DType dtype, float value, std::vector<std::byte>& out) {
  if (dtype == DType::kF32) {
    Append(value, out);
    return true;
  }
  const bool bf16 = dtype == DType::kBF16;
  const uint16_t bits = bf16 ? F32ToBF16(value) : F32ToF16(value);
  Append(bits, out);
  return !std::isfinite(value) || std::isfinite(bf16 ? BF16ToF32(bits) : F16ToF32(bits));
}

Status BiasBytes(const Checkpoint& checkpoint, const std::string& module, const PartSpec& part,
                 std::vector<std::byte>& out) {
  const StoredTensor* bias = checkpoint.Find(module + ".bias");
  if (bias == nullptr || bias->shape != part.shape) {
    return Malformed(fmt::format("tensor {}.bias", module), "it is not one number per channel")
        .Expected(fmt::format("[{}]", part.shape[0]));
  }
  std::vector<std::byte> stored(bias->bytes);
  if (Status status = checkpoint.Read(*bias, 0, stored); !status.ok()) return status;
  for (size_t n = 0; n < part.shape[0]; ++n) {
    const float value = Widen(bias->dtype, stored, n);
    if (AppendNarrow(part.dtype, value, out)) continue;
    return Unsupported(checkpoint.Where(*bias),
                       fmt::format("{} cannot hold element {}: it would become infinite",
                                   DTypeName(part.dtype), n))
        .Found(fmt::format("{}", value))
        .Hint("Choose activations of another dtype with --dtype");
  }
  return {};
}

}  // namespace

bool IsSmallPart(PartRole role) {
  return role == PartRole::kBias || role == PartRole::kInputOrder ||
         role == PartRole::kInputScale || role == PartRole::kInputZeroPoint;
}

Status SmallPartBytes(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                      const PartSpec& part, std::vector<std::byte>& out) {
  out.clear();
  const InputQuantization input = linear.input().value_or(InputQuantization{});
  switch (part.role) {
    case PartRole::kBias:
      return BiasBytes(checkpoint, linear.module(), part, out);
    case PartRole::kInputOrder:
      for (const uint32_t k : linear.k_order()) Append(k, out);
      return {};
    case PartRole::kInputScale:
      Append(input.scale, out);
      return {};
    case PartRole::kInputZeroPoint:
      Append(input.zero_point, out);
      return {};
    default:
      return Usage(linear.module(), "not a small part");
  }
}

}  // namespace prepack
