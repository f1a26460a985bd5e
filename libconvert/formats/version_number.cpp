#include "formats/version_number.h"

#include <fmt/format.h>

#include <charconv>

namespace prepack {

std::optional<VersionNumber> ParseVersionNumber(std::string_view text) {
  const char* end = text.data() + text.size();
  VersionNumber version;
  const auto [dot, error] = std::from_chars(text.data(), end, version.major);
  if (error != std::errc()) return std::nullopt;
  if (dot != end && *dot == '.') std::from_chars(dot + 1, end, version.minor);
  return version;
}

std::string ShowVersion(const VersionNumber& version) {
  return fmt::format("{}.{}", version.major, version.minor);
}

}  // namespace prepack
