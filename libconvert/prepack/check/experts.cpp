#include "prepack/check/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/text.h"
#include "prepack/check/config_shapes.h"
#include "prepack/check/missing_numbers.h"
#include "prepack/check/plain_values.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/model_parts.h"
#include "prepack/formats/module_tensors.h"

namespace prepack {
namespace {

constexpr std::string_view kExperts = ".experts.";

// The experts of one layer that have tensors of their own: by number, the modules of each.
using Experts = std::map<uint64_t, std::set<std::string_view>>;

// What stands for one expert of a tensor's name, or for all: "model.layers.0.mlp.experts" and
// "3.up_proj.weight", or "gate_up_proj".
struct ExpertName {
  std::string_view parent;
  std::string_view below;
  std::optional<uint64_t> expert;
};

std::optional<ExpertName> ParseExpertName(std::string_view name) {
  const size_t at = name.find(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  ExpertName parsed{.parent = name.substr(0, at + kExperts.size() - 1),
                    .below = name.substr(at + kExperts.size()),
                    .expert = std::nullopt};
  const size_t dot = parsed.below.find('.');
  if (dot != std::string_view::npos) parsed.expert = ParseUint(parsed.below.substr(0, dot));
  if (parsed.expert) parsed.below.remove_prefix(dot + 1);
  return parsed;
}

std::optional<uint64_t> ConfiguredExperts(const Json& config) {
  for (const std::string_view key :
       {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
    if (const auto count = CountOf(config, key)) return count;
  }
  return std::nullopt;
}

void CheckNumbers(const std::string& parent, const Experts& experts,
                  std::optional<uint64_t> configured, FindingTally& findings) {
  std::set<uint64_t> present;
  for (const auto& [expert, modules] : experts) present.insert(expert);
  const uint64_t highest = *present.rbegin();
  const uint64_t found = highest == UINT64_MAX ? highest : highest + 1;
  const uint64_t expected = std::max(configured.value_or(0), found);
  if (const MissingNumbers missing = MissingBelow(expected, present); missing.count != 0) {
    findings.Add("expert-missing", parent,
                 fmt::format("{} of {} experts are missing: {}", missing.count, expected,
                             ShowMissing(missing)));
  }
  if (configured && found > *configured) {
    findings.Add("expert-count", parent,
                 fmt::format("there are {} experts, but {} by config.json", found, *configured));
  }
}

void CheckModules(const std::string& parent, const Experts& experts, FindingTally& findings) {
  std::set<std::string_view> all;
  for (const auto& [expert, modules] : experts) all.insert(modules.begin(), modules.end());
  for (const auto& [expert, modules] : experts) {
    // Both are sorted, and `all` has whatever an expert has.
    const auto lacking = std::ranges::mismatch(all, modules).in1;
    if (lacking == all.end()) continue;
    findings.Add("expert-missing", fmt::format("{}.{}", parent, expert),
                 fmt::format("lacks {}, which other experts have", *lacking));
  }
}

// How a module is quantized; nullopt for one that could not be read.
struct State {
  std::optional<Scheme> scheme;  // nullopt: it is not quantized

  friend bool operator==(const State&, const State&) = default;
};

std::optional<State> StateOf(const Checkpoint& checkpoint, const QuantizedModel& model,
                             const std::string& module) {
  if (const QuantizedLinear* linear = model.Find(module)) return State{linear->scheme()};
  const StoredTensor* weight = checkpoint.Find(module + ".weight");
  if (weight == nullptr || !IsPlainFloat(weight->dtype)) return std::nullopt;
  return State{};
}

std::string ShowState(const State& state) {
  return state.scheme ? DescribeScheme(*state.scheme) : "not quantized";
}

void CompareSchemes(const Checkpoint& checkpoint, const QuantizedModel& model,
                    const std::string& parent, const Experts& experts, FindingTally& findings) {
  std::map<std::string_view, State> first;  // by module of the expert
  std::set<std::string_view> reported;
  for (const auto& [expert, modules] : experts) {
    for (const std::string_view below : modules) {
      const std::string module = fmt::format("{}.{}.{}", parent, expert, below);
      const std::optional<State> state = StateOf(checkpoint, model, module);
      if (!state) continue;
      const auto [it, added] = first.try_emplace(below, *state);
      if (added || it->second == *state || !reported.insert(below).second) continue;
      findings.Add("expert-schemes-differ", module,
                   fmt::format("{}, but that of an expert before is {}", ShowState(*state),
                               ShowState(it->second)));
    }
  }
}

// The first dimension of tensors that hold all experts of a layer, by layer.
using Stacks = std::map<std::string_view, std::map<std::string_view, uint64_t>>;

void CheckStacks(const Stacks& stacks, std::optional<uint64_t> configured, FindingTally& findings) {
  for (const auto& [parent, tensors] : stacks) {
    uint64_t expected = configured.value_or(0);
    if (!configured) {
      for (const auto& [tensor, count] : tensors) expected = std::max(expected, count);
    }
    for (const auto& [tensor, count] : tensors) {
      if (count == expected) continue;
      findings.Add(count < expected ? FindingId("expert-missing") : FindingId("expert-count"),
                   tensor,
                   fmt::format("the tensor holds {} experts, but {} by {}", count, expected,
                               configured ? "config.json" : "the other tensors of the layer"));
    }
  }
}

}  // namespace

void CheckExperts(const Checkpoint& checkpoint, const QuantizedModel& model,
                  std::vector<Finding>& findings) {
  std::map<std::string, Experts, std::less<>> layers;
  Stacks stacks;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    const std::optional<ExpertName> parsed = ParseExpertName(tensor.name);
    if (!parsed) continue;
    if (parsed->expert) {
      const size_t dot = parsed->below.rfind('.');
      if (dot == std::string_view::npos) continue;
      layers[std::string(parsed->parent)][*parsed->expert].insert(parsed->below.substr(0, dot));
    } else if (tensor.shape.size() >= 3) {
      stacks[parsed->parent][tensor.name] = tensor.shape[0];
    }
  }
  const std::optional<uint64_t> configured = ConfiguredExperts(LanguageConfig(checkpoint.config()));
  FindingTally tally;
  for (const auto& [parent, experts] : layers) {
    CheckNumbers(parent, experts, configured, tally);
    CheckModules(parent, experts, tally);
    CompareSchemes(checkpoint, model, parent, experts, tally);
  }
  CheckStacks(stacks, configured, tally);
  for (Finding& finding : tally.Take()) findings.push_back(std::move(finding));
}

}  // namespace prepack
