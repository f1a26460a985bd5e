#include "layouts/table.h"

#include <algorithm>
#include <array>

#include "layouts/vllm_wna16.h"
#include "layouts/zentorch_woq.h"

namespace prepack {
namespace {

constexpr std::array kTargets = {
    Target{"vllm-cpu", "vLLM on x86-64 CPUs"},
    Target{"zentorch", "vLLM with zentorch on AMD CPUs"},
};

// One row per layout, in order of preference within a target.
std::span<const Layout> Layouts() {
  static const std::array kLayouts = {
      kVllmWna16,
      kZentorchWoq,
  };
  return kLayouts;
}

}  // namespace

std::span<const Target> AllTargets() {
  return kTargets;
}

const Target* FindTarget(std::string_view id) {
  const auto it = std::ranges::find(kTargets, id, &Target::id);
  return it == kTargets.end() ? nullptr : &*it;
}

std::span<const Layout> AllLayouts() {
  return Layouts();
}

const Layout* FindLayout(std::string_view id) {
  const auto it = std::ranges::find(Layouts(), id, &Layout::id);
  return it == Layouts().end() ? nullptr : &*it;
}

std::vector<const Layout*> LayoutsOfTarget(std::string_view target) {
  std::vector<const Layout*> layouts;
  for (const Layout& layout : Layouts()) {
    if (layout.target == target) layouts.push_back(&layout);
  }
  return layouts;
}

}  // namespace prepack
