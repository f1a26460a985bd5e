#include "prepack/formats/auto_round/match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_match.h"

namespace prepack {
namespace {

// Modules that an entry can mean: those with a weight, quantized or not.
bool HasWeight(const ModuleTensors& module) {
  return module.Find("qweight") != nullptr || module.Find("weight") != nullptr;
}

struct SearchedKey {
  const AutoRoundEntry* entry = nullptr;
  ModuleRegex regex;
  bool used = false;
};

// What happens to an entry for exactly one layer that has no bits of its own.
void WarnWithoutBits(const AutoRoundEntry& entry, FindingTally& findings) {
  if (entry.bits) return;
  findings.Add("autoround-entry-without-bits", entry.where,
               "the entry names one layer but has no bits: prepack inherits them, but vLLM 0.32 "
               "loads the layer as unquantized");
}

// Reports copies in whose order another of the matching entries would count, and would mean
// something else. `found` is not empty and in the order of the first copy.
void ReportOrder(const AutoRoundConfig& config, std::string_view module,
                 const std::vector<const AutoRoundEntry*>& found, FindingTally& findings) {
  for (const RuleOrder& order : config.other_orders) {
    const AutoRoundEntry* other =
        *std::ranges::min_element(found, {}, [&](const AutoRoundEntry* entry) {
          return order.rank[static_cast<size_t>(entry - config.extra.data())];
        });
    if (ApplyEntry(config.scheme, *other) == ApplyEntry(config.scheme, *found.front())) continue;
    findings.Add("config-order-differs", module,
                 OrderDiffers(found.front()->key, other->key, order.where));
  }
}

}  // namespace

std::string_view WithoutModelPrefix(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kPrefixes = {
      "model.language_model.", "language_model.model.", "language_model.", "model."};
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

Result<AutoRoundMatcher> AutoRoundMatcher::Make(const AutoRoundConfig& config,
                                                const std::vector<ModuleTensors>& modules,
                                                FindingTally& findings) {
  AutoRoundMatcher matcher;
  matcher.config_ = &config;
  std::set<std::string_view> names;
  std::map<std::string_view, std::string_view> bare_names;  // without prefix → full
  for (const ModuleTensors& module : modules) {
    if (!HasWeight(module)) continue;
    names.insert(module.name);
    bare_names.emplace(WithoutModelPrefix(module.name), module.name);
  }
  std::vector<SearchedKey> searched;
  for (const AutoRoundEntry& entry : config.extra) {
    if (const auto exact = names.find(entry.key); exact != names.end()) {
      matcher.entries_[*exact] = &entry;
      WarnWithoutBits(entry, findings);
      continue;
    }
    // AutoRound searches names for a key that is no whole name: one without a prefix of its own
    // ("layers.1.mlp.down_proj") is a part of the names that it means, and nothing is amiss.
    const bool has_prefix = WithoutModelPrefix(entry.key) != entry.key;
    if (const auto bare = bare_names.find(WithoutModelPrefix(entry.key));
        has_prefix && bare != bare_names.end() && !matcher.entries_.contains(bare->second)) {
      matcher.entries_[bare->second] = &entry;
      findings.Add("autoround-name-prefix", entry.where,
                   "entries of extra_config have another prefix than the tensors; prepack applies "
                   "them to the same layers");
      WarnWithoutBits(entry, findings);
      continue;
    }
    Result<ModuleRegex> regex = ModuleRegex::Compile(entry.key, entry.where);
    if (!regex.ok()) {
      findings.Add(
          "autoround-pattern-skipped", entry.where,
          fmt::format("the key is neither a layer nor a regular expression; prepack skips it, "
                      "as AutoRound does: {}",
                      regex.status().what()));
      continue;
    }
    searched.push_back({&entry, *std::move(regex)});
  }
  for (const std::string_view name : names) {
    std::vector<const AutoRoundEntry*> found;
    for (SearchedKey& key : searched) {
      PREPACK_TRY_ASSIGN(const bool matches, key.regex.Search(name));
      if (!matches) continue;
      key.used = true;
      found.push_back(key.entry);
    }
    if (found.empty() || !matcher.entries_.try_emplace(name, found.front()).second) continue;
    ReportOrder(config, name, found, findings);
  }
  for (const SearchedKey& key : searched) {
    // The head is not stored where it is tied to the embedding.
    if (key.used || key.entry->key == "lm_head") continue;
    findings.Add("config-pattern-unmatched", key.entry->where,
                 "the key of extra_config matches no module of the checkpoint");
  }
  return matcher;
}

AutoRoundScheme AutoRoundMatcher::SchemeOf(std::string_view module) const {
  const AutoRoundEntry* entry = EntryOf(module);
  return entry == nullptr ? config_->scheme : ApplyEntry(config_->scheme, *entry);
}

const AutoRoundEntry* AutoRoundMatcher::EntryOf(std::string_view module) const {
  const auto it = entries_.find(module);
  return it == entries_.end() ? nullptr : it->second;
}

bool AutoRoundMatcher::InBlocks(std::string_view module) const {
  return config_->blocks.empty() ||
         std::ranges::any_of(config_->blocks, [&](const std::string& block) {
           return module.starts_with(block) ||
                  WithoutModelPrefix(module).starts_with(WithoutModelPrefix(block));
         });
}

}  // namespace prepack
