#include "base/human_units.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace prepack {
namespace {

constexpr std::array<std::string_view, 6> kPrefixes = {"k", "M", "G", "T", "P", "E"};

// "1.5 M" of what is 1000 or more.
std::string WithPrefix(uint64_t number) {
  double value = static_cast<double>(number) / 1000;
  size_t prefix = 0;
  while (value >= 999.95 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{:.1f} {}", value, kPrefixes[prefix]);
}

}  // namespace

std::string HumanBytes(uint64_t bytes) {
  return bytes < 1000 ? fmt::format("{} B", bytes) : WithPrefix(bytes) + "B";
}

std::string HumanCount(uint64_t count) {
  return count < 1000 ? fmt::format("{}", count) : WithPrefix(count);
}

std::string Plural(size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace prepack
