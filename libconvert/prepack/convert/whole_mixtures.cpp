#include "prepack/convert/whole_mixtures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "prepack/convert/module_request.h"
#include "prepack/layouts/table.h"
#include "prepack/model/module_name.h"
#include "prepack/packed/node_shares.h"

namespace prepack {
namespace {

std::vector<const Layout*> LayoutsOfMixtures(const Target& target) {
  std::vector<const Layout*> layouts = LayoutsOfTarget(target.id);
  std::erase_if(layouts, [](const Layout* layout) { return !layout->whole_mixtures; });
  return layouts;
}

// What is known of the experts of one mixture.
struct MixtureCount {
  std::set<uint64_t> experts;
  std::set<std::string_view> projections;
  const Layout* layout = nullptr;  // of the first
  size_t taken = 0;                // modules
  bool refused = false;
  bool several_layouts = false;

  void Add(const ExpertName& expert, const Layout* taker) {
    experts.insert(expert.index);
    projections.insert(expert.projection);
    if (taker == nullptr) {
      refused = true;
      return;
    }
    if (taken++ == 0) layout = taker;
    several_layouts |= taker != layout;
  }

  bool IsComplete() const {
    constexpr size_t kGateUpDown = 3;
    return !refused && projections.size() == kGateUpDown && taken == experts.size() * kGateUpDown &&
           *experts.rbegin() + 1 == experts.size();
  }
};

using MixtureCounts = std::map<std::string, MixtureCount, std::less<>>;

const Layout* FirstTaker(const std::vector<const Layout*>& layouts, const PackRequest& request) {
  const auto taker = std::ranges::find_if(
      layouts, [&](const Layout* layout) { return layout->Takes(request).ok; });
  return taker == layouts.end() ? nullptr : *taker;
}

// The layout of most whole mixtures; the first of those that are equal.
const Layout* MostFrequent(const std::vector<const Layout*>& layouts,
                           const MixtureCounts& mixtures) {
  return *std::ranges::max_element(layouts, {}, [&](const Layout* layout) {
    return std::ranges::count_if(mixtures, [&](const auto& entry) {
      const MixtureCount& mixture = entry.second;
      return mixture.layout == layout && !mixture.several_layouts && mixture.IsComplete();
    });
  });
}

std::map<std::string, MixtureFault, std::less<>> FaultsOf(const MixtureCounts& mixtures,
                                                          const Layout* layout) {
  std::map<std::string, MixtureFault, std::less<>> faults;
  for (const auto& [name, mixture] : mixtures) {
    if (!mixture.IsComplete()) {
      faults.emplace(name, MixtureFault::kIncomplete);
    } else if (mixture.several_layouts || mixture.layout != layout) {
      faults.emplace(name, MixtureFault::kOtherLayout);
    }
  }
  return faults;
}

}  // namespace

Result<std::map<std::string, MixtureFault, std::less<>>> FindMixtureFaults(
    const Checkpoint& checkpoint, std::span<const QuantizedLinear* const> modules,
    const PlanOptions& options, SchemeChooser& schemes, const Plan& plan) {
  const std::vector<const Layout*> layouts = LayoutsOfMixtures(*plan.target);
  if (layouts.empty()) return std::map<std::string, MixtureFault, std::less<>>();
  MixtureCounts mixtures;
  // Neighbours are mostly alike, and to compare them is cheaper than to ask.
  std::optional<PackRequest> last;
  const Layout* taker = nullptr;
  for (const QuantizedLinear* linear : modules) {
    const auto expert = ParseExpertName(linear->module());
    if (!expert) continue;
    PREPACK_TRY_ASSIGN(const Arithmetic arithmetic,
                       schemes.ArithmeticOf(linear->module(), linear->scheme()));
    PREPACK_TRY_ASSIGN(PackRequest request,
                       RequestFor(checkpoint, *linear, FindBiases(checkpoint, *linear), arithmetic,
                                  options, plan));
    if (last != request) {
      last = request;
      taker = FirstTaker(layouts, *last);
    }
    auto known = mixtures.find(expert->mixture);
    if (known == mixtures.end()) known = mixtures.try_emplace(std::string(expert->mixture)).first;
    known->second.Add(*expert, taker);
  }
  return FaultsOf(mixtures, MostFrequent(layouts, mixtures));
}

Status CutMixtures(uint64_t nodes, std::vector<const QuantizedLinear*>& modules, Plan& plan) {
  if (nodes < 2) return {};
  std::vector<const QuantizedLinear*> cut;
  for (const QuantizedLinear* linear : modules) {
    const std::string_view mixture = MixtureOf(linear->module());
    if (mixture.empty() || plan.mixture_faults.contains(mixture)) {
      cut.push_back(linear);
      continue;
    }
    PREPACK_TRY_ASSIGN(std::vector<std::unique_ptr<QuantizedLinear>> shares,
                       CutForNodes(*linear, nodes));
    for (auto& share : shares) {
      cut.push_back(share.get());
      plan.pieces.push_back(std::move(share));
    }
  }
  modules = std::move(cut);
  return {};
}

Status CheckNodesAreForTarget(const PlanOptions& options, const Target& target) {
  if (options.numa_nodes == 0 || options.numa_nodes > kMostNodes) {
    return Usage("--numa", "not a number of NUMA nodes")
        .Found(fmt::format("{}", options.numa_nodes))
        .Expected(fmt::format("1 to {}", kMostNodes));
  }
  if (options.numa_nodes == 1 || !LayoutsOfMixtures(target).empty()) return {};
  return Usage("--numa", "this option is only for another target")
      .Found(fmt::format("--target {}", target.id))
      .Expected(fmt::format("--target {}", kKtAmxInt8.target));
}

}  // namespace prepack
