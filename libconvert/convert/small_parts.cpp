#include "convert/small_parts.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/float_convert.h"
#include "formats/stored_linear.h"

namespace prepack {
namespace {

std::string BiasName(const std::string& module) {
  return module + ".bias";
}

template <typename T>
void Append(T value, PageBuffer& out) {
  const size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(&out[at], &value, sizeof value);
}

// Appends `value` in `dtype`; false when that makes a finite number infinite.
bool AppendNarrow(DType dtype, float value, PageBuffer& out) {
  if (dtype == DType::kF32) {
    Append(value, out);
    return true;
  }
  Append(dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value), out);
  return !std::isfinite(value) || std::isfinite(RoundTo(dtype, value));
}

Status BiasBytes(const Checkpoint& checkpoint, const std::string& module, const PartSpec& part,
                 PageBuffer& out) {
  const StoredTensor* bias = FindBias(checkpoint, module);
  if (bias == nullptr || bias->shape != part.shape) {
    return Malformed(fmt::format("tensor {}", BiasName(module)), "it is not one number per channel")
        .Expected(fmt::format("[{}]", part.shape[0]));
  }
  std::vector<float> values(part.shape[0]);
  if (Status status = ReadFloats(checkpoint, *bias, 0, values); !status.ok()) return status;
  for (size_t n = 0; n < values.size(); ++n) {
    if (AppendNarrow(part.dtype, values[n], out)) continue;
    return Unsupported(checkpoint.Where(*bias),
                       fmt::format("{} cannot hold element {}: it would become infinite",
                                   DTypeName(part.dtype), n))
        .Found(fmt::format("{}", values[n]))
        .Hint("Choose activations of another dtype with --dtype");
  }
  return {};
}

}  // namespace

const StoredTensor* FindBias(const Checkpoint& checkpoint, const std::string& module) {
  return checkpoint.Find(BiasName(module));
}

std::vector<std::string> ReplacedTensors(const QuantizedLinear& linear, bool with_bias) {
  std::vector<std::string> names(linear.source_tensors().begin(), linear.source_tensors().end());
  if (with_bias) names.push_back(BiasName(linear.module()));
  return names;
}

bool IsSmallPart(PartRole role) {
  return role == PartRole::kBias || role == PartRole::kInputOrder ||
         role == PartRole::kInputScale || role == PartRole::kInputZeroPoint;
}

Status SmallPartBytes(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                      const PartSpec& part, PageBuffer& out) {
  out.clear();
  const InputQuantization input = linear.input().value_or(InputQuantization{});
  switch (part.role) {
    case PartRole::kBias:
      return BiasBytes(checkpoint, linear.module(), part, out);
    case PartRole::kInputOrder: {
      const Result<SharedOrder> order = linear.KOrder();
      if (!order.ok()) return order.status();
      for (const uint32_t k : **order) Append(k, out);
      return {};
    }
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
