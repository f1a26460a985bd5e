#include "formats/fused_siblings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "formats/finding_tally.h"

namespace prepack {
namespace {

constexpr std::array<SiblingSet, 3> kSets = {{
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj"}},
    {"", {"w1", "w3"}},
}};

const SiblingSet* SetThatBeginsWith(std::string_view first) {
  const auto set = std::ranges::find(kSets, first, [](const SiblingSet& s) { return s.names[0]; });
  return set == kSets.end() ? nullptr : &*set;
}

struct Sibling {
  std::string_view name;         // "q_proj"
  std::optional<Scheme> scheme;  // none: not quantized

  std::string Describe() const {
    return fmt::format("{} {}", name, scheme ? DescribeScheme(*scheme) : "not quantized");
  }
};

// Those of the names that are modules of `parent`, which ends in a dot.
std::vector<Sibling> FindSiblings(std::string_view parent, const SiblingSet& set,
                                  const std::vector<ModuleTensors>& modules,
                                  const QuantizedModel& model) {
  std::vector<Sibling> siblings;
  for (const std::string_view name : set.Names()) {
    const std::string full = fmt::format("{}{}", parent, name);
    if (const QuantizedLinear* linear = model.Find(full)) {
      siblings.push_back({name, WithoutN(linear->scheme())});
      continue;
    }
    const auto module = std::ranges::lower_bound(modules, full, {}, &ModuleTensors::name);
    const bool plain =
        module != modules.end() && module->name == full && module->Find("weight") != nullptr;
    if (plain) siblings.push_back({name, std::nullopt});
  }
  return siblings;
}

bool Differ(const std::vector<Sibling>& siblings) {
  return std::ranges::any_of(
      siblings, [&](const Sibling& sibling) { return sibling.scheme != siblings.front().scheme; });
}

}  // namespace

std::span<const SiblingSet> SiblingSets() {
  return kSets;
}

void ReportFusedSiblings(const std::vector<ModuleTensors>& modules, QuantizedModel& model) {
  FindingTally findings;
  for (const ModuleTensors& module : modules) {
    const size_t dot = module.name.rfind('.');
    if (dot == std::string_view::npos) continue;
    const SiblingSet* set = SetThatBeginsWith(module.name.substr(dot + 1));
    if (set == nullptr) continue;
    const std::vector<Sibling> siblings =
        FindSiblings(module.name.substr(0, dot + 1), *set, modules, model);
    if (!Differ(siblings)) continue;
    std::vector<std::string> states;
    states.reserve(siblings.size());
    for (const Sibling& sibling : siblings) states.push_back(sibling.Describe());
    findings.Add("module-siblings-differ", module.name,
                 fmt::format("layers that runtimes fuse differ: {}", fmt::join(states, ", ")));
  }
  std::ranges::move(findings.Take(), std::back_inserter(model.findings));
}

}  // namespace prepack
