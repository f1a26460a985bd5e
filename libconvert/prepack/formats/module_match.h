#pragma once

// Which modules an entry of a quantization config means (mirrors compressed-tensors 0.19,
// utils/match.py, and what AutoRound and GPTQModel share with it).
//
//   "re:.*q_proj"    a regular expression, anchored at the start only: takes a.q_proj_extra, too
//   "model.lm_head"  this name, exactly; nothing below it, and case matters
//   "Linear"         the class of the module; a file holds no classes, so callers say which class a
//                    module must have had, see ModuleClass

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/regex.h"

namespace prepack {

// Longer names are refused by the readers: no model has them, and they would make matching slow.
inline constexpr size_t kMaxModuleNameBytes = 512;

// The class that a module with a weight matrix had when it was quantized, as far as its name tells.
enum class ModuleClass : uint8_t { kLinear, kEmbedding };

ModuleClass ClassOfModule(std::string_view module);

// One entry.
class ConfigPattern {
 public:
  enum class Kind : uint8_t { kName, kRegex };

  // `where` names the place of the entry, for errors.
  static Result<ConfigPattern> Parse(std::string_view text, std::string_view where);

  // The entry as it stands in the config, "re:" included.
  const std::string& text() const { return text_; }
  Kind kind() const { return regex_ ? Kind::kRegex : Kind::kName; }

  // An error when a regular expression takes too long on this name.
  Result<bool> MatchesName(std::string_view module) const {
    return regex_ ? regex_->MatchesStart(module) : Result<bool>(text_ == module);
  }
  bool MatchesClass(ModuleClass module_class) const;
  // True for an entry that can only be the name of a class: it has no dot, as no layer of a
  // transformer lies at the top, and begins with a capital letter.
  bool LooksLikeClass() const;

 private:
  ConfigPattern(std::string text, std::optional<ModuleRegex> regex);

  std::string text_;
  std::optional<ModuleRegex> regex_;
};

// Shell patterns, as ModelOpt and Quark write them (mirrors Python's fnmatch, case counts): `*` is
// any characters, dots included, `?` is one, `[ab]`, `[a-z]` and `[!a]` are one of a set. Takes at
// most pattern × name steps.
bool MatchesWildcard(std::string_view pattern, std::string_view name);

// kUnsupported when the patterns above cannot be applied to a name: too long or not ASCII.
Status CheckModuleName(std::string_view module);

// The first of rules with a `regex` that matches the module, as GPTQModel looks for it; null: none.
template <typename Rule>
Result<const Rule*> FirstRuleOf(const std::vector<Rule>& rules, std::string_view module) {
  if (rules.empty()) return nullptr;
  PREPACK_TRY(CheckModuleName(module));
  for (const Rule& rule : rules) {
    PREPACK_TRY_ASSIGN(const bool matches, rule.regex.MatchesStart(module));
    if (matches) return &rule;
  }
  return nullptr;
}

// Copies of a config list the same rules in different orders: transformers sorts the keys of
// config.json, and quantizers leave the file beside it in the order in which the rules were made.
// That makes a difference only where several rules match one module, of which the first counts.

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
    PREPACK_TRY_ASSIGN(const bool found, matches(rule));
    if (found) first = rule;
  }
  return first;
}

// The message of the finding "config-order-differs".
std::string OrderDiffers(std::string_view ours, std::string_view theirs, std::string_view where);

}  // namespace prepack
