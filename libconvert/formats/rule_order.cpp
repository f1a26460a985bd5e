#include "formats/rule_order.h"

#include <fmt/format.h>

#include <limits>
#include <unordered_map>

#include "formats/finding.h"

namespace prepack {

namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

}  // namespace

std::optional<RuleOrder> OrderOfCopy(const std::vector<std::string_view>& ours,
                                     const std::vector<std::string_view>& theirs,
                                     std::string where) {
  if (ours == theirs) return std::nullopt;
  std::unordered_map<std::string_view, size_t> places;
  for (const std::string_view key : theirs) places.emplace(key, places.size());
  RuleOrder order{.where = std::move(where), .rank = {}};
  for (const std::string_view key : ours) {
    const auto place = places.find(key);
    order.rank.push_back(place == places.end() ? kNowhere : place->second);
  }
  return order;
}

std::string OrderDiffers(std::string_view ours, std::string_view theirs, std::string_view where) {
  return fmt::format(
      "two rules match the module and mean different things: \"{}\" comes first here and counts, "
      "as "
      "in transformers and vLLM, but \"{}\" comes first in {}",
      Printable(ours), Printable(theirs), where);
}

}  // namespace prepack
