#include "convert/fused_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "canonical/stacked_linear.h"
#include "convert/small_parts.h"
#include "formats/fused_siblings.h"

namespace prepack {
namespace {

using Members = std::vector<const QuantizedLinear*>;

// "model.layers.0.self_attn." of "model.layers.0.self_attn.q_proj".
std::string_view ParentOf(std::string_view module) {
  return module.substr(0, module.rfind('.') + 1);
}

bool IsExpert(std::string_view module) {
  return module.starts_with("experts.") || module.find(".experts.") != std::string_view::npos;
}

// The set that a module of the model belongs to, if it has siblings to be fused with.
const SiblingSet* SetOf(std::string_view module) {
  const std::string_view name = module.substr(ParentOf(module).size());
  for (const SiblingSet& set : SiblingSets()) {
    if (!set.fused.empty() && std::ranges::count(set.Names(), name) != 0) return &set;
  }
  return nullptr;
}

bool HasTensorsOf(const Checkpoint& checkpoint, const std::string& module) {
  const std::string prefix = module + ".";
  const auto first =
      std::ranges::lower_bound(checkpoint.tensors(), prefix, {}, &StoredTensor::name);
  return first != checkpoint.tensors().end() && first->name.starts_with(prefix);
}

// Biases are stored with all members, in one dtype, or with none.
std::string WhyBiasesDiffer(const Checkpoint& checkpoint, const Members& members) {
  const StoredTensor* first = FindBias(checkpoint, members.front()->module());
  for (const QuantizedLinear* member : members) {
    const StoredTensor* bias = FindBias(checkpoint, member->module());
    if ((bias == nullptr) != (first == nullptr)) return "only some of them have a bias";
    if (bias != nullptr && bias->dtype != first->dtype) {
      return "their biases are of different dtypes";
    }
  }
  return "";
}

// Fuses one set of siblings, or says why not.
Status Fuse(const Checkpoint& checkpoint, const QuantizedModel& model, const std::string& parent,
            const SiblingSet& set, FusedModules& fused) {
  const std::string name = parent + std::string(set.fused);
  std::string& why_not = fused.apart[name];
  Members members;
  for (const std::string_view sibling : set.Names()) {
    members.push_back(model.Find(fmt::format("{}{}", parent, sibling)));
    if (members.back() != nullptr) continue;
    why_not = fmt::format("{} is not there, or not quantized", sibling);
    return {};
  }
  why_not = WhyBiasesDiffer(checkpoint, members);
  if (why_not.empty() && HasTensorsOf(checkpoint, name)) {
    why_not = "the checkpoint has tensors of that name";
  }
  if (!why_not.empty()) return {};
  Result<std::unique_ptr<QuantizedLinear>> whole = Stack(name, std::move(members));
  if (whole.ok()) {
    fused.modules.push_back(*std::move(whole));
    fused.apart.erase(name);
    return {};
  }
  if (whole.status().kind() != ErrorKind::kUnsupported) return whole.status();
  why_not = whole.status().what();
  return {};
}

}  // namespace

Result<FusedModules> FuseSiblings(const Checkpoint& checkpoint, const QuantizedModel& model) {
  std::map<std::pair<std::string, std::string_view>, const SiblingSet*> sets;
  for (const auto& linear : model.modules) {
    const std::string& module = linear->module();
    if (IsExpert(module)) continue;
    if (const SiblingSet* set = SetOf(module)) {
      sets.emplace(std::pair(ParentOf(module), set->fused), set);
    }
  }
  FusedModules fused;
  for (const auto& [place, set] : sets) {
    Status status = Fuse(checkpoint, model, place.first, *set, fused);
    if (!status.ok()) return status;
  }
  return fused;
}

}  // namespace prepack
