#include "formats/compressed_tensors_copies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "formats/finding.h"
#include "formats/json_fields.h"

namespace prepack {

namespace {

Status Conflict(const std::string& where, const std::string& found, const std::string& expected,
                const CtConfig& first) {
  return Malformed(where, "two copies of the quantization config disagree")
      .Found(found)
      .Expected(fmt::format("{}, as {} says", expected, first.where))
      .Hint("Make them equal: readers disagree about which of them counts")
      .Id(FindingId("config-conflict"));
}

std::string ShowArgs(const std::optional<CtArgs>& args) {
  return args ? DescribeCtArgs(*args) : "none";
}

std::vector<std::string> Targets(const CtGroup& group) {
  std::vector<std::string> targets;
  for (const ConfigPattern& pattern : group.targets) {
    targets.push_back(fmt::format("\"{}\"", Printable(pattern.text())));
  }
  return targets;
}

std::string ShowTargets(const CtGroup& group) {
  constexpr size_t kMaxShown = 4;
  std::vector<std::string> targets = Targets(group);
  if (targets.size() > kMaxShown) {
    targets.resize(kMaxShown);
    targets.emplace_back("…");
  }
  return fmt::format("[{}]", fmt::join(targets, ", "));
}

Status CompareGroup(const CtGroup& ours, const CtGroup& theirs, const CtConfig& first) {
  if (Targets(ours) != Targets(theirs)) {
    return Conflict(FieldPath(theirs.where, "targets"), ShowTargets(theirs), ShowTargets(ours),
                    first);
  }
  if (ours.weights != theirs.weights) {
    return Conflict(FieldPath(theirs.where, "weights"), ShowArgs(theirs.weights),
                    ShowArgs(ours.weights), first);
  }
  if (ours.input_activations != theirs.input_activations) {
    return Conflict(FieldPath(theirs.where, "input_activations"),
                    ShowArgs(theirs.input_activations), ShowArgs(ours.input_activations), first);
  }
  if (ours.output_activations != theirs.output_activations) {
    return Conflict(FieldPath(theirs.where, "output_activations"),
                    ShowArgs(theirs.output_activations), ShowArgs(ours.output_activations), first);
  }
  if (ours.format == theirs.format) return {};
  return Conflict(FieldPath(theirs.where, "format"), theirs.format, ours.format, first);
}

// Some writers sort them, others do not.
std::vector<const CtGroup*> GroupsByName(const CtConfig& config) {
  std::vector<const CtGroup*> groups;
  for (const CtGroup& group : config.groups) groups.push_back(&group);
  std::ranges::sort(groups, {}, &CtGroup::name);
  return groups;
}

std::string ShowVersion(const CtVersion& version) {
  return fmt::format("{}", fmt::join(version.parts, "."));
}

// Versions between the same two changes of what is stored mean the same.
bool MeanTheSame(const CtVersion& a, const CtVersion& b) {
  return std::ranges::all_of(kCtStorageChanges,
                             [&](const CtVersion& change) { return (a < change) == (b < change); });
}

Status CompareCopy(const CtConfig& first, const CtConfig& copy) {
  if (first.groups.size() != copy.groups.size()) {
    return Conflict(FieldPath(copy.where, "config_groups"),
                    fmt::format("{} groups", copy.groups.size()),
                    fmt::format("{} groups", first.groups.size()), first);
  }
  const std::vector<const CtGroup*> ours = GroupsByName(first);
  const std::vector<const CtGroup*> theirs = GroupsByName(copy);
  for (size_t i = 0; i < ours.size(); ++i) {
    Status status = CompareGroup(*ours[i], *theirs[i], first);
    if (!status.ok()) return status;
  }
  if (!first.version || !copy.version || MeanTheSame(*first.version, *copy.version)) return {};
  return Conflict(FieldPath(copy.where, "version"), ShowVersion(*copy.version),
                  ShowVersion(*first.version), first);
}

}  // namespace

Result<CtConfig> ParseCtConfigs(const std::vector<QuantizationConfig>& configs) {
  Result<CtConfig> first = ParseCtConfig(configs.front());
  if (!first.ok()) return first;
  for (size_t i = 1; i < configs.size(); ++i) {
    const Result<CtConfig> copy = ParseCtConfig(configs[i]);
    if (!copy.ok()) return copy.status();
    Status status = CompareCopy(*first, *copy);
    if (!status.ok()) return status;
    if (!first->version) first->version = copy->version;
  }
  return first;
}

}  // namespace prepack
