#include "formats/fused_siblings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

namespace prepack {
namespace {

// The first name of a set stands for all of them; a name that is empty ends the set.
constexpr std::array<std::array<std::string_view, 3>, 3> kSiblings = {{
    {"q_proj", "k_proj", "v_proj"},
    {"gate_proj", "up_proj", ""},
    {"w1", "w3", ""},
}};

// The sets that a module is the first of.
const std::array<std::string_view, 3>* SiblingsOf(std::string_view last_name) {
  for (const auto& set : kSiblings) {
    if (set.front() == last_name) return &set;
  }
  return nullptr;
}

// The scheme without what follows from N, in which siblings may differ.
Scheme Comparable(Scheme scheme) {
  if (scheme.granularity == Granularity::kTensor) scheme.scale_rows = 1;
  return scheme;
}

}  // namespace

void ReportFusedSiblings(const std::vector<ModuleTensors>& modules, const QuantizedModel& model,
                         FindingTally& findings) {
  std::unordered_set<std::string_view> names;
  for (const ModuleTensors& module : modules) names.insert(module.name);
  for (const ModuleTensors& module : modules) {
    const size_t dot = module.name.rfind('.');
    if (dot == std::string_view::npos) continue;
    const auto* siblings = SiblingsOf(module.name.substr(dot + 1));
    if (siblings == nullptr) continue;
    std::vector<std::string> states;
    std::optional<std::optional<Scheme>> first;
    bool differ = false;
    for (const std::string_view sibling : *siblings) {
      const std::string name = fmt::format("{}.{}", module.name.substr(0, dot), sibling);
      if (sibling.empty() || !names.contains(name)) continue;
      const QuantizedLinear* linear = model.Find(name);
      const std::optional<Scheme> scheme =
          linear == nullptr ? std::nullopt : std::optional(Comparable(linear->scheme()));
      if (!first) first = scheme;
      differ = differ || *first != scheme;
      states.push_back(
          fmt::format("{} {}", sibling, scheme ? DescribeScheme(*scheme) : "not quantized"));
    }
    if (!differ) continue;
    findings.Add("module-siblings-differ", module.name,
                 fmt::format("layers that runtimes fuse differ: {}", fmt::join(states, ", ")));
  }
}

}  // namespace prepack
