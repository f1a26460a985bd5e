#include "units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <charconv>

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

namespace prepack::cli {

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

std::string HumanSeconds(double seconds) {
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string ShapeText(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<uint64_t> ParseCount(std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace prepack::cli
