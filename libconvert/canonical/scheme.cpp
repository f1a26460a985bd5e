#include "canonical/scheme.h"

#include <fmt/format.h>

namespace prepack {

uint32_t CodeBits(CodeType code) {
  switch (code) {
    case CodeType::kU4:
      return 4;
  }
  return 0;
}

uint8_t ZeroOfSymmetric(CodeType code) {
  return static_cast<uint8_t>(1U << (CodeBits(code) - 1));
}

std::string_view GranularityName(Granularity granularity) {
  return granularity == Granularity::kChannel ? "channel" : "group";
}

std::optional<Granularity> GranularityFromName(std::string_view name) {
  if (name == "channel") return Granularity::kChannel;
  if (name == "group") return Granularity::kGroup;
  return std::nullopt;
}

std::string SchemeName(const Scheme& scheme) {
  std::string_view activations;
  switch (scheme.activations) {
    case ActivationQuantization::kNone:
      activations = "a16";
      break;
  }
  return fmt::format("w{}{}", CodeBits(scheme.code), activations);
}

std::string DescribeScheme(const Scheme& scheme) {
  std::string granularity(GranularityName(scheme.granularity));
  if (scheme.granularity == Granularity::kGroup) {
    granularity += fmt::format(" {}", scheme.group_size);
  }
  return fmt::format("{} {} {}", SchemeName(scheme), granularity,
                     scheme.symmetric ? "symmetric" : "asymmetric");
}

}  // namespace prepack
