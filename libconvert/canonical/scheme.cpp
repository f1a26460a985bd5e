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
  const std::string granularity = scheme.granularity == Granularity::kChannel
                                      ? std::string("channel")
                                      : fmt::format("group {}", scheme.group_size);
  return fmt::format("{} {} {}", SchemeName(scheme), granularity,
                     scheme.symmetric ? "symmetric" : "asymmetric");
}

}  // namespace prepack
