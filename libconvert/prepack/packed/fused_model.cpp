// The members of a fused module follow from its name, as they do for vLLM, and not from the
// manifest: a folder that lists q, v, k would be served as q, k, v.

#include "prepack/packed/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/model/module_name.h"
#include "prepack/model/stacked_linear.h"

namespace prepack {

std::vector<std::string> LayersByName(std::string_view module) {
  // Not taken from the table that convert fuses by, so that a mistake in that table is found here.
  struct Row {
    std::string_view whole;
    std::vector<std::string_view> layers;
  };
  static const std::vector<Row> kRows = {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
                                         {"gate_up_proj", {"gate_proj", "up_proj"}}};
  const std::string_view name = LastPart(module);
  const std::string_view parent = module.substr(0, module.size() - name.size());
  std::vector<std::string> layers;
  for (const Row& row : kRows) {
    if (row.whole != name) continue;
    for (const std::string_view layer : row.layers) {
      layers.push_back(fmt::format("{}{}", parent, layer));
    }
  }
  return layers;
}

std::vector<std::vector<std::string>> ExpertsByName(std::string_view module, uint64_t experts) {
  // Nor is this.
  struct Row {
    std::string_view whole;
    std::vector<std::string_view> layers;
    bool may_be_stored_stacked;
  };
  static const std::vector<Row> kRows = {{"gate_up_proj", {"gate_proj", "up_proj"}, true},
                                         {"down_proj", {"down_proj"}, true},
                                         {"w13", {"w1", "w3"}, false},
                                         {"w2", {"w2"}, false}};
  const std::string_view name = LastPart(module);
  const std::string_view mixture = ModuleOf(module);
  const auto row = std::ranges::find(kRows, name, &Row::whole);
  if (row == kRows.end() || LastPart(mixture) != "experts") return {};
  std::vector<std::vector<std::string>> lists(row->may_be_stored_stacked ? 2 : 1);
  for (uint64_t expert = 0; expert < experts; ++expert) {
    for (const std::string_view layer : row->layers) {
      lists[0].push_back(fmt::format("{}.{}.{}", mixture, expert, layer));
    }
    if (lists.size() > 1) lists[1].push_back(fmt::format("{}.{}", module, expert));
  }
  return lists;
}

namespace {

// The modules of these names; none if some are missing.
std::vector<const QuantizedLinear*> FindAll(const std::vector<std::string>& names,
                                            const QuantizedModel& model) {
  std::vector<const QuantizedLinear*> members;
  for (const std::string& name : names) {
    members.push_back(model.Find(name));
    if (members.back() == nullptr) return {};
  }
  return members;
}

// The modules of the source that runtimes expect in a module of this name; none if some are
// missing.
std::vector<const QuantizedLinear*> FindMembers(const std::string& name, uint64_t experts,
                                                const QuantizedModel& model) {
  if (experts == 0) return FindAll(LayersByName(name), model);
  std::vector<const QuantizedLinear*> members;
  for (const std::vector<std::string>& list : ExpertsByName(name, experts)) {
    if (members.empty()) members = FindAll(list, model);
  }
  return members;
}

}  // namespace

Status FuseAsPacked(const Manifest& manifest, QuantizedModel& model) {
  std::vector<std::unique_ptr<QuantizedLinear>> fused;
  std::set<const QuantizedLinear*> taken;
  for (const auto& [name, record] : manifest.modules) {
    std::vector<const QuantizedLinear*> members = FindMembers(name, record.experts, model);
    const bool free = std::ranges::none_of(
        members, [&](const QuantizedLinear* member) { return taken.contains(member); });
    if (members.empty() || !free || model.Find(name) != nullptr) continue;
    Result<std::unique_ptr<QuantizedLinear>> whole =
        Stack(name, members, record.experts, record.scheme.code == CodeType::kBF16);
    if (whole.ok()) {
      taken.insert(members.begin(), members.end());
      fused.push_back(*std::move(whole));
    } else if (whole.status().kind() != ErrorKind::kUnsupported) {
      return whole.status();
    }
  }
  model.Replace(taken, std::move(fused));
  return {};
}

}  // namespace prepack
