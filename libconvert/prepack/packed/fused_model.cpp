// The members of a fused module follow from its name, as they do for vLLM, and not from the
// manifest: a folder that lists q, v, k would be served as q, k, v.

#include "prepack/packed/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
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

namespace {

// The modules of the source that runtimes expect in a module of this name; none if some are
// missing.
std::vector<const QuantizedLinear*> FindMembers(const std::string& name,
                                                const QuantizedModel& model) {
  std::vector<const QuantizedLinear*> members;
  for (const std::string& layer : LayersByName(name)) {
    members.push_back(model.Find(layer));
    if (members.back() == nullptr) return {};
  }
  return members;
}

// Moves modules that are now members of others out of the way.
void SetAside(const std::set<const QuantizedLinear*>& members, QuantizedModel& model) {
  const auto gone =
      std::stable_partition(model.modules.begin(), model.modules.end(),
                            [&](const auto& linear) { return !members.contains(linear.get()); });
  std::move(gone, model.modules.end(), std::back_inserter(model.members));
  model.modules.erase(gone, model.modules.end());
}

}  // namespace

Status FuseAsPacked(const Manifest& manifest, QuantizedModel& model) {
  std::vector<std::unique_ptr<QuantizedLinear>> fused;
  std::set<const QuantizedLinear*> taken;
  for (const auto& [name, record] : manifest.modules) {
    std::vector<const QuantizedLinear*> members = FindMembers(name, model);
    const bool free = std::ranges::none_of(
        members, [&](const QuantizedLinear* member) { return taken.contains(member); });
    if (members.empty() || !free || model.Find(name) != nullptr) continue;
    Result<std::unique_ptr<QuantizedLinear>> whole = Stack(name, members);
    if (whole.ok()) {
      taken.insert(members.begin(), members.end());
      fused.push_back(*std::move(whole));
    } else if (whole.status().kind() != ErrorKind::kUnsupported) {
      return whole.status();
    }
  }
  SetAside(taken, model);
  std::move(fused.begin(), fused.end(), std::back_inserter(model.modules));
  std::ranges::sort(model.modules, {},
                    [](const auto& linear) -> const std::string& { return linear->module(); });
  return {};
}

}  // namespace prepack
