#include "prepack/model/scheme.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace prepack {

namespace {

constexpr std::array<std::pair<Granularity, std::string_view>, 4> kGranularities = {{
    {Granularity::kTensor, "tensor"},
    {Granularity::kChannel, "channel"},
    {Granularity::kGroup, "group"},
    {Granularity::kBlock, "block"},
}};

constexpr std::array<std::pair<CodeType, std::string_view>, 6> kCodeTypes = {{
    {CodeType::kU4, "u4"},
    {CodeType::kU8, "u8"},
    {CodeType::kS8, "s8"},
    {CodeType::kF8E4M3, "f8e4m3"},
    {CodeType::kF4E2M1, "f4e2m1"},
    {CodeType::kBF16, "bf16"},
}};

constexpr std::array<std::pair<ActivationGranularity, std::string_view>, 3>
    kActivationGranularities = {{
        {ActivationGranularity::kTensor, "tensor"},
        {ActivationGranularity::kToken, "token"},
        {ActivationGranularity::kGroup, "group"},
    }};

template <typename Value, size_t kCount>
std::string_view NameOf(Value value,
                        const std::array<std::pair<Value, std::string_view>, kCount>& names) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "";
}

template <typename Value, size_t kCount>
std::optional<Value> ValueOf(std::string_view name,
                             const std::array<std::pair<Value, std::string_view>, kCount>& names) {
  for (const auto& [value, known] : names) {
    if (known == name) return value;
  }
  return std::nullopt;
}

constexpr ActivationScheme kDynamicInt8 = {.type = ActivationType::kInt,
                                           .bits = 8,
                                           .symmetric = true,
                                           .dynamic = true,
                                           .granularity = ActivationGranularity::kToken};
constexpr ActivationScheme kDynamicFp8 = {.type = ActivationType::kFloat,
                                          .bits = 8,
                                          .symmetric = true,
                                          .dynamic = true,
                                          .granularity = ActivationGranularity::kToken};

ActivationScheme EightBitActivations(const Scheme& weights) {
  if (IsFloatCode(weights.code)) return kDynamicFp8;
  const ActivationScheme& stored = weights.activations;
  const bool says_how = stored.type == ActivationType::kInt && stored.bits == 8;
  return says_how ? stored : kDynamicInt8;
}

}  // namespace

uint8_t ZeroOfSymmetric(const Scheme& scheme) {
  const bool is_unsigned = scheme.code == CodeType::kU4 || scheme.code == CodeType::kU8;
  return is_unsigned ? static_cast<uint8_t>(1U << (scheme.bits - 1)) : uint8_t{0};
}

Scheme WithoutN(Scheme scheme) {
  if (scheme.granularity == Granularity::kTensor) scheme.scale_rows = 1;
  return scheme;
}

std::string_view GranularityName(Granularity granularity) {
  return NameOf(granularity, kGranularities);
}

std::optional<Granularity> GranularityFromName(std::string_view name) {
  return ValueOf(name, kGranularities);
}

std::string_view CodeTypeName(CodeType code) {
  return NameOf(code, kCodeTypes);
}

std::optional<CodeType> CodeTypeFromName(std::string_view name) {
  return ValueOf(name, kCodeTypes);
}

std::string_view ActivationGranularityName(ActivationGranularity granularity) {
  return NameOf(granularity, kActivationGranularities);
}

std::optional<ActivationGranularity> ActivationGranularityFromName(std::string_view name) {
  return ValueOf(name, kActivationGranularities);
}

std::string SchemeName(const Scheme& scheme) {
  if (scheme.code == CodeType::kBF16) return "bf16";
  std::string name = fmt::format("{}{}", IsFloatCode(scheme.code) ? "wfp" : "w", scheme.bits);
  switch (scheme.activations.type) {
    case ActivationType::kNone:
      return name + "a16";
    case ActivationType::kInt:
      return name + fmt::format("a{}", scheme.activations.bits);
    case ActivationType::kFloat:
      return name + fmt::format("afp{}", scheme.activations.bits);
  }
  return name;
}

std::string DescribeActivations(const ActivationScheme& activations) {
  if (activations.type == ActivationType::kNone) return "none";
  std::string text = fmt::format("{}-bit {} per {}", activations.bits,
                                 activations.type == ActivationType::kInt ? "int" : "float",
                                 ActivationGranularityName(activations.granularity));
  if (activations.granularity == ActivationGranularity::kGroup) {
    text += fmt::format(" of {}", activations.group_size);
  }
  text += activations.dynamic ? " dynamic" : " static";
  if (!activations.symmetric) text += " asymmetric";
  return text;
}

std::string DescribeScheme(const Scheme& scheme) {
  if (scheme.code == CodeType::kBF16) return "bf16, dequantized";
  std::string granularity(GranularityName(scheme.granularity));
  if (scheme.granularity == Granularity::kGroup) {
    granularity += fmt::format(" {}", scheme.group_size);
  } else if (scheme.granularity == Granularity::kBlock) {
    granularity += fmt::format(" {}x{}", scheme.scale_rows, scheme.group_size);
  }
  std::string text = fmt::format("{} {}", SchemeName(scheme), granularity);
  if (!IsFloatCode(scheme.code)) text += scheme.symmetric ? " symmetric" : " asymmetric";
  return text;
}

std::optional<ActivationScheme> ActivationsFor(const Scheme& weights, WantedScheme wanted) {
  const bool four = weights.bits == 4;
  const bool eight = weights.bits == 8;
  switch (wanted) {
    case WantedScheme::kAuto:
      if (IsFloatCode(weights.code)) return ActivationScheme{};
      return weights.activations;
    case WantedScheme::kW4A16:
      return four ? std::optional(ActivationScheme{}) : std::nullopt;
    case WantedScheme::kW4A8:
      return four ? std::optional(EightBitActivations(weights)) : std::nullopt;
    case WantedScheme::kW8A8:
      return eight ? std::optional(EightBitActivations(weights)) : std::nullopt;
    case WantedScheme::kW8A16:
      return eight ? std::optional(ActivationScheme{}) : std::nullopt;
    case WantedScheme::kBF16:
      return ActivationScheme{};
  }
  return std::nullopt;
}

}  // namespace prepack
