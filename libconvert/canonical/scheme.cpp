#include "canonical/scheme.h"

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

}  // namespace

uint8_t ZeroOfSymmetric(const Scheme& scheme) {
  const bool is_unsigned = scheme.code == CodeType::kU4 || scheme.code == CodeType::kU8;
  return is_unsigned ? static_cast<uint8_t>(1U << (scheme.bits - 1)) : uint8_t{0};
}

std::string_view GranularityName(Granularity granularity) {
  for (const auto& [known, name] : kGranularities) {
    if (known == granularity) return name;
  }
  return "";
}

std::optional<Granularity> GranularityFromName(std::string_view name) {
  for (const auto& [granularity, known] : kGranularities) {
    if (known == name) return granularity;
  }
  return std::nullopt;
}

std::string_view CodeTypeName(CodeType code) {
  switch (code) {
    case CodeType::kU4:
      return "u4";
    case CodeType::kU8:
      return "u8";
    case CodeType::kS8:
      return "s8";
    case CodeType::kF8E4M3:
      return "f8e4m3";
  }
  return "";
}

std::string_view ActivationGranularityName(ActivationGranularity granularity) {
  switch (granularity) {
    case ActivationGranularity::kTensor:
      return "tensor";
    case ActivationGranularity::kToken:
      return "token";
    case ActivationGranularity::kGroup:
      return "group";
  }
  return "";
}

std::string SchemeName(const Scheme& scheme) {
  std::string name =
      scheme.code == CodeType::kF8E4M3 ? std::string("wfp8") : fmt::format("w{}", scheme.bits);
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
  std::string granularity(GranularityName(scheme.granularity));
  if (scheme.granularity == Granularity::kGroup) {
    granularity += fmt::format(" {}", scheme.group_size);
  } else if (scheme.granularity == Granularity::kBlock) {
    granularity += fmt::format(" {}x{}", scheme.scale_rows, scheme.group_size);
  }
  std::string text = fmt::format("{} {}", SchemeName(scheme), granularity);
  if (scheme.code != CodeType::kF8E4M3) text += scheme.symmetric ? " symmetric" : " asymmetric";
  return text;
}

}  // namespace prepack
