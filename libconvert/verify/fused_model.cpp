#include "verify/fused_model.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "canonical/stacked_linear.h"

namespace prepack {
namespace {

// The modules of the source that the record names; none, when they are not all there as it says.
std::vector<const QuantizedLinear*> FindMembers(const ModuleRecord& record,
                                                const QuantizedModel& model) {
  std::vector<const QuantizedLinear*> members;
  for (const FusedMember& member : record.fused) {
    const QuantizedLinear* linear = model.Find(member.module);
    if (linear == nullptr || linear->n() != member.n) return {};
    members.push_back(linear);
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
    std::vector<const QuantizedLinear*> members = FindMembers(record, model);
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
