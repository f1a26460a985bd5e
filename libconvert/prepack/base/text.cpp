#include "prepack/base/text.h"

#include <fmt/format.h>
#include <charconv>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <vector>

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

namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string DidYouMean(std::string_view wanted, std::span<const std::string> known) {
  constexpr size_t kMaxNameBytes = 512;  // a longer name is not a slip of the hand
  if (wanted.empty() || wanted.size() > kMaxNameBytes) return "";
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& name : known) {
    if (name.size() > kMaxNameBytes) continue;
    const size_t distance = EditDistance(wanted, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = &name;
    }
  }
  return best == nullptr ? "" : "Did you mean " + *best + "?";
}

std::optional<uint64_t> ParseUint(std::string_view text, int base) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace prepack
