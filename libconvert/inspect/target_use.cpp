#include "inspect/target_use.h"

#include <algorithm>
#include <utility>

#include "convert/plan.h"

namespace prepack {
namespace {

// The reasons of modules that are alike are the same.
class LeftAsStored {
 public:
  void Add(const ModulePlan& module) {
    const auto [it, is_new] = of_kind_.try_emplace(&module.request, left_.size());
    if (is_new) it->second = IndexOf(module);
    ++left_[it->second].modules;
  }
  std::vector<LeftModules> Take() {
    std::ranges::stable_sort(left_, std::ranges::greater(), &LeftModules::modules);
    return std::move(left_);
  }

 private:
  size_t IndexOf(const ModulePlan& module) {
    std::string why = module.WhyRejected();
    const auto same = std::ranges::find(left_, why, &LeftModules::why);
    const auto index = static_cast<size_t>(same - left_.begin());
    if (same == left_.end()) {
      left_.push_back({.why = std::move(why), .first = module.linear->module(), .modules = 0});
    }
    return index;
  }

  std::vector<LeftModules> left_;
  std::map<const PackRequest*, size_t> of_kind_;
};

TargetUse UseOf(const Plan& plan) {
  TargetUse use{.target = std::string(plan.target->id),
                .modules = plan.modules.size(),
                .packed = plan.PackedModules(),
                .layouts = {},
                .left = {},
                .output_bytes = plan.output_bytes};
  LeftAsStored left;
  for (const ModulePlan& module : plan.modules) {
    use.module_bytes += module.packed_bytes;
    use.weights += module.linear->n() * module.linear->k();
    if (module.chosen == nullptr) {
      left.Add(module);
    } else {
      ++use.layouts[std::string(module.chosen->id)];
    }
  }
  use.left = left.Take();
  return use;
}

}  // namespace

double TargetUse::BitsPerWeight() const {
  return weights == 0 ? 0 : 8.0 * static_cast<double>(module_bytes) / static_cast<double>(weights);
}

std::vector<TargetUse> UseOfTargets(const Checkpoint& checkpoint, const QuantizedModel& model) {
  std::vector<TargetUse> uses;
  if (model.modules.empty()) return uses;
  for (const Target& target : AllTargets()) {
    const Result<Plan> plan =
        MakePlan(checkpoint, model, {.target = std::string(target.id), .schemes = {}});
    if (plan.ok()) {
      uses.push_back(UseOf(*plan));
      continue;
    }
    uses.push_back({.target = std::string(target.id),
                    .modules = model.modules.size(),
                    .layouts = {},
                    .left = {{.why = plan.status().ToString(),
                              .first = model.modules.front()->module(),
                              .modules = model.modules.size()}}});
  }
  return uses;
}

}  // namespace prepack
