#include "prepack/check/missing_numbers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "prepack/formats/json_fields.h"

namespace prepack {
namespace {

constexpr size_t kShownNumbers = 5;

}  // namespace

std::optional<uint64_t> CountOf(const Json& config, std::string_view key) {
  const Json* value = JsonMember(config, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<uint64_t>();
}

MissingNumbers MissingBelow(uint64_t count, const std::set<uint64_t>& present) {
  const auto end = present.lower_bound(count);
  MissingNumbers missing;
  missing.count = count - static_cast<uint64_t>(std::distance(present.begin(), end));
  for (uint64_t i = 0;
       i < count && missing.first.size() < std::min<uint64_t>(missing.count, kShownNumbers); ++i) {
    if (!present.contains(i)) missing.first.push_back(i);
  }
  return missing;
}

std::string ShowMissing(const MissingNumbers& missing) {
  return fmt::format("{}{}", fmt::join(missing.first, ", "),
                     missing.count > missing.first.size() ? ", …" : "");
}

}  // namespace prepack
