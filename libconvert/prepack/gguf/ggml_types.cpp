#include "prepack/gguf/ggml_types.h"

#include <algorithm>
#include <array>

#include "prepack/base/checked.h"

namespace prepack::gguf {
namespace {

using enum GgmlType;

constexpr uint32_t kSuperBlock = 256;

constexpr auto kTypes = std::to_array<GgmlTypeInfo>({
    {kF32, "F32", 1, 4, ScaleKind::kNone, {}},
    {kF16, "F16", 1, 2, ScaleKind::kNone, {}},
    {kQ4_0, "Q4_0", 32, 18, ScaleKind::kF16, {0}},
    {kQ4_1, "Q4_1", 32, 20, ScaleKind::kF16, {0, 2}},
    {kQ5_0, "Q5_0", 32, 22, ScaleKind::kF16, {0}},
    {kQ5_1, "Q5_1", 32, 24, ScaleKind::kF16, {0, 2}},
    {kQ8_0, "Q8_0", 32, 34, ScaleKind::kF16, {0}},
    {kQ2_K, "Q2_K", kSuperBlock, 84, ScaleKind::kF16, {80, 82}},
    {kQ3_K, "Q3_K", kSuperBlock, 110, ScaleKind::kF16, {108}},
    {kQ4_K, "Q4_K", kSuperBlock, 144, ScaleKind::kF16, {0, 2}},
    {kQ5_K, "Q5_K", kSuperBlock, 176, ScaleKind::kF16, {0, 2}},
    {kQ6_K, "Q6_K", kSuperBlock, 210, ScaleKind::kF16, {208}},
    {kIQ2_XXS, "IQ2_XXS", kSuperBlock, 66, ScaleKind::kF16, {0}},
    {kIQ2_XS, "IQ2_XS", kSuperBlock, 74, ScaleKind::kF16, {0}},
    {kIQ3_XXS, "IQ3_XXS", kSuperBlock, 98, ScaleKind::kF16, {0}},
    {kIQ1_S, "IQ1_S", kSuperBlock, 50, ScaleKind::kF16, {0}},
    {kIQ4_NL, "IQ4_NL", 32, 18, ScaleKind::kF16, {0}},
    {kIQ3_S, "IQ3_S", kSuperBlock, 110, ScaleKind::kF16, {0}},
    {kIQ2_S, "IQ2_S", kSuperBlock, 82, ScaleKind::kF16, {0}},
    {kIQ4_XS, "IQ4_XS", kSuperBlock, 136, ScaleKind::kF16, {0}},
    {kI8, "I8", 1, 1, ScaleKind::kNone, {}},
    {kI16, "I16", 1, 2, ScaleKind::kNone, {}},
    {kI32, "I32", 1, 4, ScaleKind::kNone, {}},
    {kI64, "I64", 1, 8, ScaleKind::kNone, {}},
    {kF64, "F64", 1, 8, ScaleKind::kNone, {}},
    {kIQ1_M, "IQ1_M", kSuperBlock, 56, ScaleKind::kNone, {}},  // its scale lies in pieces between
                                                               // other bits
    {kBF16, "BF16", 1, 2, ScaleKind::kNone, {}},
    {kTQ1_0, "TQ1_0", kSuperBlock, 54, ScaleKind::kF16, {52}},
    {kTQ2_0, "TQ2_0", kSuperBlock, 66, ScaleKind::kF16, {64}},
    {kMXFP4, "MXFP4", 32, 17, ScaleKind::kE8M0, {0}},
    {kNVFP4, "NVFP4", 64, 36, ScaleKind::kUE4M3, {0, 1, 2, 3}},
    {kQ1_0, "Q1_0", 128, 18, ScaleKind::kF16, {0}},
});

}  // namespace

std::span<const GgmlTypeInfo> AllGgmlTypes() {
  return kTypes;
}

const GgmlTypeInfo* FindGgmlType(uint32_t number) {
  const auto* it = std::ranges::find(kTypes, static_cast<GgmlType>(number), &GgmlTypeInfo::type);
  return it == kTypes.end() ? nullptr : it;
}

const GgmlTypeInfo* FindGgmlType(std::string_view name) {
  const auto* it = std::ranges::find(kTypes, name, &GgmlTypeInfo::name);
  return it == kTypes.end() ? nullptr : it;
}

const GgmlTypeInfo& InfoOf(GgmlType type) {
  return *FindGgmlType(static_cast<uint32_t>(type));
}

GgmlType FloatTypeOf(DType dtype) {
  if (dtype == DType::kBF16) return GgmlType::kBF16;
  return dtype == DType::kF16 ? GgmlType::kF16 : GgmlType::kF32;
}

std::optional<uint64_t> BytesOf(GgmlType type, const Dims& dims) {
  const GgmlTypeInfo& info = InfoOf(type);
  const uint64_t row = dims.empty() ? 1 : dims.front();
  if (row % info.block != 0) return std::nullopt;
  const std::optional<uint64_t> weights = CheckedProduct({dims.begin(), dims.size()});
  return weights ? CheckedMul(*weights / info.block, info.bytes) : std::nullopt;
}

}  // namespace prepack::gguf
