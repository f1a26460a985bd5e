#include "formats/compressed_tensors_match.h"

#include <algorithm>

namespace prepack {

CtMatcher::CtMatcher(const CtConfig& config) {
  // A target that stands in two groups belongs to the later one, in both libraries, but keeps the
  // place of the first: that is how a Python dict behaves.
  std::unordered_map<std::string_view, size_t> places;
  for (const CtGroup& group : config.groups) {
    for (const ConfigPattern& pattern : group.targets) {
      const auto [it, added] = places.try_emplace(pattern.text(), targets_.size());
      if (added) {
        targets_.push_back({&pattern, &group});
      } else {
        targets_[it->second].group = &group;
      }
    }
  }
  for (const Target& target : targets_) {
    if (target.pattern->kind() == ConfigPattern::Kind::kRegex) {
      regexes_.push_back(target);
      continue;
    }
    names_.emplace(target.pattern->text(), target.group);
    if (target.pattern->LooksLikeClass()) classes_.push_back(target);
  }
  const auto alphabetical = [](const Target& a, const Target& b) {
    return a.pattern->text() < b.pattern->text();
  };
  std::sort(regexes_.begin(), regexes_.end(), alphabetical);
  std::sort(classes_.begin(), classes_.end(), alphabetical);
  for (const ConfigPattern& pattern : config.ignore) {
    if (pattern.kind() == ConfigPattern::Kind::kRegex) {
      ignored_regexes_.push_back(&pattern);
      continue;
    }
    ignored_names_.insert(pattern.text());
    if (pattern.LooksLikeClass()) ignored_classes_.push_back(&pattern);
  }
}

Result<const CtGroup*> CtMatcher::GroupByName(std::span<const Target> targets,
                                              std::string_view module) {
  for (const Target& target : targets) {
    const Result<bool> matches = target.pattern->MatchesName(module);
    if (!matches.ok()) return matches.status();
    if (*matches) return target.group;
  }
  return nullptr;
}

const CtGroup* CtMatcher::GroupByClass(std::span<const Target> targets, ModuleClass module_class) {
  for (const Target& target : targets) {
    if (target.pattern->MatchesClass(module_class)) return target.group;
  }
  return nullptr;
}

Result<const CtGroup*> CtMatcher::GroupOf(std::string_view module, ModuleClass module_class) const {
  if (const auto it = names_.find(module); it != names_.end()) return it->second;
  Result<const CtGroup*> group = GroupByName(regexes_, module);
  if (!group.ok() || *group != nullptr) return group;
  return GroupByClass(classes_, module_class);
}

Result<const CtGroup*> CtMatcher::GroupOfVllm(std::string_view module,
                                              ModuleClass module_class) const {
  Result<const CtGroup*> group = GroupByName(targets_, module);
  if (!group.ok() || *group != nullptr) return group;
  return GroupByClass(targets_, module_class);
}

Result<bool> CtMatcher::Ignored(std::string_view module, ModuleClass module_class) const {
  if (ignored_names_.contains(module)) return true;
  for (const ConfigPattern* entry : ignored_regexes_) {
    Result<bool> matches = entry->MatchesName(module);
    if (!matches.ok() || *matches) return matches;
  }
  return std::any_of(ignored_classes_.begin(), ignored_classes_.end(),
                     [&](const auto* entry) { return entry->MatchesClass(module_class); });
}

}  // namespace prepack
