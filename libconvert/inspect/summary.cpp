#include "inspect/summary.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "html/depth_order.h"

namespace prepack {
namespace {

// Schemes in some order, to group by.
auto OrderOf(const Scheme& scheme) {
  const ActivationScheme& activations = scheme.activations;
  return std::tuple(scheme.code, scheme.bits, scheme.granularity, scheme.group_size,
                    scheme.scale_rows, scheme.symmetric, activations.type, activations.bits,
                    activations.symmetric, activations.dynamic, activations.granularity,
                    activations.group_size);
}

// The scheme without what follows from the size of a module.
Scheme WithoutSize(Scheme scheme) {
  if (scheme.granularity == Granularity::kTensor || scheme.granularity == Granularity::kChannel) {
    scheme.group_size = 0;
  }
  return WithoutN(scheme);
}

// Folds the names of what `things` holds, those with equal keys together.
template <typename Folded, typename Thing, typename KeyOf>
std::vector<Folded> FoldAlike(const std::vector<Thing>& things, std::string Thing::*name,
                              const KeyOf& key_of) {
  struct Alike {
    std::vector<std::string_view> names;
    const Thing* like = nullptr;
  };
  std::map<decltype(key_of(things.front())), Alike> kinds;
  for (const Thing& thing : things) {
    Alike& alike = kinds[key_of(thing)];
    alike.names.push_back(thing.*name);
    alike.like = &thing;
  }
  std::vector<Folded> folded;
  for (const auto& [key, alike] : kinds) {
    for (NamePattern& pattern : FoldNames(alike.names)) {
      folded.push_back({.names = std::move(pattern), .like = alike.like});
    }
  }
  std::ranges::stable_sort(folded, IsShallower,
                           [](const Folded& one) -> const std::string& { return one.names.first; });
  return folded;
}

std::vector<std::string_view> TensorsOfModules(const InspectReport& report) {
  std::vector<std::string_view> names;
  for (const ModuleSummary& module : report.modules) {
    names.insert(names.end(), module.tensors.begin(), module.tensors.end());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

double SchemeUse::BitsPerWeight() const {
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
}

std::vector<SchemeUse> UseOfSchemes(const InspectReport& report) {
  std::map<std::pair<decltype(OrderOf({})), std::string_view>, SchemeUse> uses;
  for (const ModuleSummary& module : report.modules) {
    SchemeUse& use = uses[{OrderOf(WithoutSize(module.scheme)), module.layout}];
    if (use.modules++ == 0) {
      use.scheme = module.scheme;
      use.layout = module.layout;
    }
    use.weights += module.n * module.k;
    use.bytes += module.bytes;
  }
  std::vector<SchemeUse> sorted;
  sorted.reserve(uses.size());
  for (auto& [key, use] : uses) sorted.push_back(std::move(use));
  std::ranges::stable_sort(sorted, std::ranges::greater(), &SchemeUse::bytes);
  return sorted;
}

std::vector<DTypeUse> TensorsOutsideModules(const InspectReport& report) {
  const std::vector<std::string_view> inside = TensorsOfModules(report);
  std::map<DType, DTypeUse> uses;
  for (const StoredTensor& tensor : report.tensors) {
    if (std::ranges::binary_search(inside, std::string_view(tensor.name))) continue;
    DTypeUse& use = uses[tensor.dtype];
    use.dtype = tensor.dtype;
    ++use.tensors;
    use.bytes += tensor.bytes;
  }
  std::vector<DTypeUse> sorted;
  sorted.reserve(uses.size());
  for (const auto& [dtype, use] : uses) sorted.push_back(use);
  std::ranges::stable_sort(sorted, std::ranges::greater(), &DTypeUse::bytes);
  return sorted;
}

std::vector<FoldedModules> FoldModules(const InspectReport& report) {
  return FoldAlike<FoldedModules>(
      report.modules, &ModuleSummary::module, [](const ModuleSummary& module) {
        return std::tuple(module.n, module.k, OrderOf(module.scheme), module.layout, module.bytes);
      });
}

std::vector<FoldedTensors> FoldTensors(const InspectReport& report) {
  return FoldAlike<FoldedTensors>(
      report.tensors, &StoredTensor::name, [](const StoredTensor& tensor) {
        return std::tuple(tensor.dtype,
                          std::vector<uint64_t>(tensor.shape.begin(), tensor.shape.end()));
      });
}

}  // namespace prepack
