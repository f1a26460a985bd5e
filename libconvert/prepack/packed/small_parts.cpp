// Bias, input order and static activation scales of a packed module. convert writes them and verify
// recomputes them with these functions; that they are right is for the GEMM level to show.

#include "prepack/packed/small_parts.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/model/stacked_linear.h"

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

// Appends `value` in `dtype`; returns false if that makes a finite number infinite.
bool AppendNarrow(DType dtype, float value, PageBuffer& out) {
  if (dtype == DType::kF32) {
    Append(value, out);
    return true;
  }
  Append(dtype == DType::kBF16 ? F32ToBF16(value) : F32ToF16(value), out);
  return !std::isfinite(value) || std::isfinite(RoundTo(dtype, value));
}

// Appends the bias of one module of the checkpoint.
Status AppendBias(const Checkpoint& checkpoint, const QuantizedLinear& linear, const PartSpec& part,
                  PageBuffer& out) {
  PREPACK_TRY(CheckBiases(checkpoint, linear));
  const StoredTensor* bias = FindBias(checkpoint, linear.module());
  if (bias == nullptr) {
    return Malformed(fmt::format("tensor {}", BiasName(linear.module())), "it is missing");
  }
  std::vector<float> values(linear.n());
  PREPACK_TRY(ReadFloats(checkpoint, *bias, 0, values));
  for (size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(values[n])) {
      return Malformed(checkpoint.Where(*bias), fmt::format("element {} is not finite", n))
          .Found(fmt::format("{}", values[n]))
          .Hint("The model computes garbage with it; export the model again")
          .Id(FindingId("value-not-finite"));
    }
    if (AppendNarrow(part.dtype, values[n], out)) continue;
    return Unsupported(checkpoint.Where(*bias),
                       fmt::format("{} cannot represent element {}: it would become infinite",
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

std::vector<const StoredTensor*> FindBiases(const Checkpoint& checkpoint,
                                            const QuantizedLinear& linear) {
  std::vector<const StoredTensor*> biases;
  for (const QuantizedLinear* member : MembersOf(linear)) {
    const StoredTensor* bias = FindBias(checkpoint, member->module());
    if (bias != nullptr) biases.push_back(bias);
  }
  return biases;
}

Status CheckBiases(const Checkpoint& checkpoint, const QuantizedLinear& linear) {
  for (const QuantizedLinear* member : MembersOf(linear)) {
    const StoredTensor* bias = FindBias(checkpoint, member->module());
    if (bias == nullptr) continue;
    const std::array<uint64_t, 1> expected = {member->n()};
    Status status =
        RequireShape(checkpoint, *bias, expected, "one value per output channel of the module");
    if (status.ok()) {
      status = RequireDType(checkpoint, *bias, "the values of the bias",
                            {DType::kBF16, DType::kF16, DType::kF32, DType::kF64});
    }
    if (!status.ok()) return status;
  }
  return {};
}

std::vector<std::string> ReplacedTensors(const QuantizedLinear& linear, bool with_bias) {
  std::vector<std::string> names(linear.source_tensors().begin(), linear.source_tensors().end());
  if (!with_bias) return names;
  for (const QuantizedLinear* member : MembersOf(linear)) {
    names.push_back(BiasName(member->module()));
  }
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
      for (const QuantizedLinear* member : MembersOf(linear)) {
        PREPACK_TRY(AppendBias(checkpoint, *member, part, out));
      }
      return {};
    case PartRole::kInputOrder: {
      PREPACK_TRY_ASSIGN(const SharedOrder order, linear.KOrder());
      for (const uint32_t k : *order) Append(k, out);
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
