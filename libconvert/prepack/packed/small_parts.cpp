// Bias, input order and static activation scales of a packed module. convert writes them and verify
// recomputes them with these functions; that they are right is for the GEMM level to show.

#include "prepack/packed/small_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/base/thread_kept.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/layouts/parameters.h"
#include "prepack/model/stacked_linear.h"

namespace prepack {
namespace {

// Valid until the thread asks again.
std::string_view BiasName(const QuantizedLinear& linear) {
  if (linear.stacked_bias() != nullptr) return linear.stacked_bias()->tensor;
  auto& name = KeptByThread<std::string, struct NameOfBias>();
  name.assign(linear.module()).append(".bias");
  return name;
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

// The group of each input channel of the model.
Status AppendGroupIndex(const QuantizedLinear& linear, PageBuffer& out) {
  PREPACK_TRY_ASSIGN(const SharedOrder order, linear.KOrder());
  const uint64_t group_size = linear.scheme().group_size;
  std::vector<int32_t> group_of(linear.k());
  for (uint64_t j = 0; j < linear.k(); ++j) {
    group_of[order->empty() ? j : (*order)[j]] = static_cast<int32_t>(j / group_size);
  }
  for (const int32_t group : group_of) Append(group, out);
  return {};
}

// Appends the bias of one module of the checkpoint.
Status AppendBias(const Checkpoint& checkpoint, const QuantizedLinear& linear, const PartSpec& part,
                  PageBuffer& out) {
  PREPACK_TRY(CheckBiases(checkpoint, linear));
  const std::optional<BiasPlace> bias = FindBias(checkpoint, linear);
  if (!bias) return Malformed(fmt::format("tensor {}", BiasName(linear)), "it is missing");
  const std::string where = checkpoint.Where(*bias->tensor);
  // From the first element to the last.
  std::vector<float> values((linear.n() - 1) * bias->step + 1);
  PREPACK_TRY(ReadFloats(checkpoint, *bias->tensor, bias->first, values));
  for (size_t n = 0; n < values.size(); n += bias->step) {
    if (!std::isfinite(values[n])) {
      return Malformed(where, fmt::format("element {} is not finite", bias->first + n))
          .Found(fmt::format("{}", values[n]))
          .Hint("The model computes garbage with it; export the model again")
          .Id(FindingId("value-not-finite"));
    }
    if (AppendNarrow(part.dtype, values[n], out)) continue;
    return Unsupported(where,
                       fmt::format("{} cannot represent element {}: it would become infinite",
                                   DTypeName(part.dtype), bias->first + n))
        .Found(fmt::format("{}", values[n]))
        .Hint("Choose activations of another dtype with --dtype");
  }
  return {};
}

}  // namespace

std::optional<BiasPlace> FindBias(const Checkpoint& checkpoint, const QuantizedLinear& linear) {
  const StackedBias* stacked = linear.stacked_bias();
  if (stacked == nullptr && !checkpoint.has_biases()) return std::nullopt;
  const StoredTensor* tensor = checkpoint.Find(BiasName(linear));
  if (tensor == nullptr) return std::nullopt;
  if (stacked == nullptr)
    return BiasPlace{.tensor = tensor, .first = 0, .step = 1, .bytes = tensor->bytes};
  const uint64_t bytes =
      tensor->bytes / std::max<uint64_t>(stacked->rows, 1) / stacked->channels * linear.n();
  return BiasPlace{.tensor = tensor,
                   .first = stacked->row * stacked->channels + stacked->first,
                   .step = stacked->step,
                   .bytes = bytes};
}

std::vector<BiasPlace> FindBiases(const Checkpoint& checkpoint, const QuantizedLinear& linear) {
  std::vector<BiasPlace> biases;
  const auto add = [&](const QuantizedLinear& member) {
    if (const auto bias = FindBias(checkpoint, member)) biases.push_back(*bias);
  };
  for (const QuantizedLinear* member : linear.members()) add(*member);
  if (linear.members().empty()) add(linear);
  return biases;
}

Status CheckBiases(const Checkpoint& checkpoint, const QuantizedLinear& linear) {
  for (const QuantizedLinear* member : MembersOf(linear)) {
    const std::optional<BiasPlace> bias = FindBias(checkpoint, *member);
    if (!bias) continue;
    std::vector<uint64_t> expected = {member->n()};
    if (const StackedBias* stacked = member->stacked_bias(); stacked != nullptr) {
      expected = {stacked->channels};
      if (stacked->rows > 0) expected.insert(expected.begin(), stacked->rows);
    }
    PREPACK_TRY(RequireShape(checkpoint, *bias->tensor, expected,
                             "one value per output channel of the module"));
    PREPACK_TRY(RequireDType(checkpoint, *bias->tensor, "the values of the bias",
                             {DType::kBF16, DType::kF16, DType::kF32, DType::kF64}));
  }
  return {};
}

std::vector<const StoredTensor*> ReplacedTensors(const Checkpoint& checkpoint,
                                                 const QuantizedLinear& linear, bool with_bias) {
  std::vector<const StoredTensor*> tensors;
  tensors.reserve(linear.source_tensors().size());
  const auto add = [&](const StoredTensor* tensor) {
    // Experts that are stored in one tensor share it.
    const bool is_known = !tensors.empty() && tensors.back() == tensor;
    if (tensor != nullptr && !is_known) tensors.push_back(tensor);
  };
  const StoredTensor* last = nullptr;
  for (const std::string_view name : linear.source_tensors()) {
    last = checkpoint.FindAfter(last, name);
    add(last);
  }
  if (!with_bias) return tensors;
  for (const BiasPlace& bias : FindBiases(checkpoint, linear)) add(bias.tensor);
  return tensors;
}

bool IsSmallPart(PartRole role) {
  return role == PartRole::kBias || role == PartRole::kInputOrder ||
         role == PartRole::kInputScale || role == PartRole::kInputZeroPoint ||
         role == PartRole::kGlobalScale || role == PartRole::kInputGlobalScale ||
         role == PartRole::kWeightShape || role == PartRole::kGroupIndex;
}

Status SmallPartBytes(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                      const Layout& layout, const PartSpec& part, PageBuffer& out) {
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
      if (part.dtype == DType::kI8) {
        Append(static_cast<int8_t>(input.zero_point), out);
      } else {
        Append(input.zero_point, out);
      }
      return {};
    case PartRole::kGlobalScale:
      Append(PackedGlobalScale(layout, linear.global_scale().value_or(GlobalScale{})).value, out);
      return {};
    case PartRole::kInputGlobalScale:
      Append(PackedGlobalScale(layout, linear.input_global_scale().value_or(GlobalScale{})).value,
             out);
      return {};
    case PartRole::kWeightShape:
      Append(static_cast<int64_t>(linear.n()), out);
      Append(static_cast<int64_t>(linear.k()), out);
      return {};
    case PartRole::kGroupIndex:
      return AppendGroupIndex(linear, out);
    default:
      return Usage(linear.module(), "not a small part");
  }
}

Status ReadHeldBias(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                    const Layout& layout, const std::vector<PartSpec>& parts,
                    std::vector<float>& bias) {
  bias.clear();
  const PartSpec* part = FindPart(parts, PartRole::kBias);
  if (part == nullptr) return {};
  PageBuffer bytes;
  PREPACK_TRY(SmallPartBytes(checkpoint, linear, layout, *part, bytes));
  bias.resize(bytes.size() / sizeof(float));
  std::memcpy(bias.data(), bytes.data(), bytes.size());
  return {};
}

}  // namespace prepack
