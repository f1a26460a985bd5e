#ifndef PREPACK_FORMATS_RULE_ORDER_H_
#define PREPACK_FORMATS_RULE_ORDER_H_

// Copies of a config list the same rules in different orders: transformers sorts the keys of
// config.json, and quantizers leave the file beside it in the order in which the rules were made.
// That makes a difference only where several rules match one module, of which the first counts.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace prepack {

// The order of one copy, seen from another.
struct RuleOrder {
  std::string where;         // place of the copy, for messages
  std::vector<size_t> rank;  // of each rule of the other copy, here
};

// The order of `theirs`; nullopt when it is the same. A key that is not there comes last.
std::optional<RuleOrder> OrderOfCopy(const std::vector<std::string_view>& ours,
                                     const std::vector<std::string_view>& theirs,
                                     std::string where);

// The rule that would count in that order; `chosen` is the first one that matches in our own.
// `matches(rule)` is a Result<bool>, and asked only of rules that the two orders place differently.
template <typename Matches>
Result<size_t> FirstInOrder(const RuleOrder& order, size_t chosen, Matches matches) {
  size_t first = chosen;
  for (size_t rule = chosen + 1; rule < order.rank.size(); ++rule) {
    if (order.rank[rule] > order.rank[first]) continue;
    const Result<bool> found = matches(rule);
    if (!found.ok()) return found.status();
    if (*found) first = rule;
  }
  return first;
}

// The message of the finding "config-order-differs".
std::string OrderDiffers(std::string_view ours, std::string_view theirs, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_FORMATS_RULE_ORDER_H_
