// What each target would make of a checkpoint.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/convert/plan.h"
#include "prepack/inspect/inspect.h"
#include "prepack/layouts/table.h"
#include "prepack/model/module_name.h"
#include "prepack/packed/small_parts.h"

namespace prepack {
namespace {

// Layers of a model that are alike get the same plan: one of them is planned, and counts as often
// as there are such layers.
struct StandingModules {
  std::vector<const QuantizedLinear*> modules;
  std::vector<uint64_t> times;  // by module: how many layers it stands for
};

// A module in no list of layers is a layer of its own, of one module.
struct Layer {
  std::string_view list;
  std::span<const std::unique_ptr<QuantizedLinear>> modules;
};

std::string_view BelowLayer(std::string_view module) {
  const auto layer = ParseLayerName(module);
  return layer ? layer->below : module;
}

bool HasSameBias(const Checkpoint& checkpoint, const QuantizedLinear& a, const QuantizedLinear& b) {
  const std::optional<BiasPlace> of_a = FindBias(checkpoint, a);
  const std::optional<BiasPlace> of_b = FindBias(checkpoint, b);
  if (!of_a || !of_b) return of_a.has_value() == of_b.has_value();
  return of_a->tensor->dtype == of_b->tensor->dtype && of_a->bytes == of_b->bytes;
}

// Whatever a plan looks at.
bool AreAlike(const Checkpoint& checkpoint, const QuantizedLinear& a, const QuantizedLinear& b) {
  return a.n() == b.n() && a.k() == b.k() && a.scheme() == b.scheme() &&
         a.stored_scale_dtype() == b.stored_scale_dtype() && a.reordered() == b.reordered() &&
         a.source_bytes() == b.source_bytes() &&
         a.global_scale().has_value() == b.global_scale().has_value() &&
         a.input_global_scale().has_value() == b.input_global_scale().has_value() &&
         BelowLayer(a.module()) == BelowLayer(b.module()) && HasSameBias(checkpoint, a, b);
}

bool AreAlike(const Checkpoint& checkpoint, const Layer& a, const Layer& b) {
  return a.list == b.list &&
         std::ranges::equal(a.modules, b.modules, [&](const auto& one, const auto& other) {
           return AreAlike(checkpoint, *one, *other);
         });
}

// Names are in order, so that the modules of a layer follow each other.
std::vector<Layer> LayersOf(const QuantizedModel& model) {
  const std::span all(model.modules);
  std::vector<Layer> layers;
  std::optional<LayerName> last;
  size_t begin = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::optional<LayerName> layer = ParseLayerName(all[i]->module());
    if (i > begin &&
        (!layer || !last || layer->list != last->list || layer->index != last->index)) {
      layers.push_back({last ? last->list : "", all.subspan(begin, i - begin)});
      begin = i;
    }
    last = layer;
  }
  layers.push_back({last ? last->list : "", all.subspan(begin)});
  return layers;
}

StandingModules ModulesThatStandForAll(const Checkpoint& checkpoint, const QuantizedModel& model) {
  // Models have few kinds of layers: one that had very many would only be planned layer by layer.
  constexpr size_t kMostKinds = 32;
  std::vector<std::pair<Layer, uint64_t>> kinds;
  for (const Layer& layer : LayersOf(model)) {
    const auto looked_at = std::span(kinds).first(std::min(kinds.size(), kMostKinds));
    const auto same = std::ranges::find_if(
        looked_at, [&](const auto& kind) { return AreAlike(checkpoint, kind.first, layer); });
    if (same != looked_at.end()) {
      ++same->second;
    } else {
      kinds.emplace_back(layer, 1);
    }
  }
  StandingModules standing;
  for (const auto& [layer, times] : kinds) {
    for (const auto& linear : layer.modules) standing.modules.push_back(linear.get());
    standing.times.resize(standing.modules.size(), times);
  }
  return standing;
}

// Modules that are alike have the same reasons.
class LeftAsStored {
 public:
  void Add(const ModulePlan& module, uint64_t times) {
    const auto [it, is_new] = of_kind_.try_emplace(&module.request, left_.size());
    if (is_new) it->second = IndexOf(module);
    left_[it->second].modules += times;
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
      left_.push_back(
          {.why = std::move(why), .first = std::string(module.linear->module()), .modules = 0});
    }
    return index;
  }

  std::vector<LeftModules> left_;
  std::map<const PackRequest*, size_t> of_kind_;
};

TargetUse UseOf(const Plan& plan, const StandingModules& standing) {
  TargetUse use{.target = std::string(plan.target->id),
                .layouts = {},
                .left = {},
                .output_bytes = plan.source_bytes};
  LeftAsStored left;
  for (size_t i = 0; i < plan.modules.size(); ++i) {
    const ModulePlan& module = plan.modules[i];
    const uint64_t times = standing.times[i];
    use.modules += times;
    use.module_bytes += times * module.packed_bytes;
    use.weights += times * module.linear->n() * module.linear->k();
    use.output_bytes += times * (module.packed_bytes - module.source_bytes);
    if (module.chosen == nullptr) {
      left.Add(module, times);
    } else {
      use.packed += times;
      use.layouts[std::string(module.chosen->id)] += times;
    }
  }
  use.left = left.Take();
  return use;
}

// What a runtime that runs nothing but the experts of mixtures takes of a model without is not
// worth a line.
bool IsFor(const Target& target, const QuantizedModel& model) {
  const std::vector<const Layout*> layouts = LayoutsOfTarget(target.id);
  const bool has_others = std::ranges::any_of(layouts, [](const Layout* layout) {
    return !layout->for_experts && !layout->for_dequantized;
  });
  return has_others || std::ranges::any_of(model.modules, [](const auto& linear) {
           return IsExpert(linear->module());
         });
}

}  // namespace

double TargetUse::BitsPerWeight() const {
  return weights == 0 ? 0 : 8.0 * static_cast<double>(module_bytes) / static_cast<double>(weights);
}

std::vector<TargetUse> UseOfTargets(const Checkpoint& checkpoint, const QuantizedModel& model) {
  std::vector<TargetUse> uses;
  if (model.modules.empty()) return uses;
  const StandingModules standing = ModulesThatStandForAll(checkpoint, model);
  for (const Target& target : AllTargets()) {
    if (target.checkpoint) continue;  // their plans read zero points and scales
    if (!IsFor(target, model)) continue;
    const Result<Plan> plan =
        MakePlan(checkpoint, model,
                 {.target = std::string(target.id), .schemes = {}, .only = standing.modules});
    if (plan.ok()) {
      uses.push_back(UseOf(*plan, standing));
      continue;
    }
    uses.push_back({.target = std::string(target.id),
                    .modules = model.modules.size(),
                    .layouts = {},
                    .left = {{.why = plan.status().ToString(),
                              .first = std::string(model.modules.front()->module()),
                              .modules = model.modules.size()}}});
  }
  return uses;
}

}  // namespace prepack
