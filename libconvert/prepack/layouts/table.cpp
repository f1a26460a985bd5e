#include "prepack/layouts/table.h"

#include <algorithm>
#include <array>

namespace prepack {
namespace {

constexpr std::array kTargets = {
    Target{"vllm-cpu", "vLLM on x86-64 CPUs", true},
    Target{"zentorch", "vLLM with zentorch on AMD CPUs", true},
    Target{"onednn", "programs that call oneDNN's matmul"},
    Target{"kt", "KTransformers (kt-kernel with SGLang)", false, true},
};

// One row per layout, in order of preference within a target.
constexpr auto kLayouts = std::to_array<const Layout*>({
    &kVllmWna16,
    &kVllmInt4W4A8,
    &kVllmInt8Vnni,
    &kVllmInt8Plain,
    &kVllmFp8Vnni,
    &kVllmFp8W8A8Vnni4,
    &kVllmFp8W8A8Plain,
    &kVllmMxfp4,
    &kVllmBf16Vnni,
    &kZentorchWoq,
    &kZentorchDa8w4,
    &kZentorchInt8,
    &kZentorchInt8Dlp,
    &kOneDnnW4A16,
    &kOneDnnW4A8,
    &kOneDnnW8A8,
    &kKtAmxInt8,
    &kPlainBf16,
    &kPlainBf16Conv1d,
});

}  // namespace

std::span<const Target> AllTargets() {
  return kTargets;
}

const Target* FindTarget(std::string_view id) {
  const auto it = std::ranges::find(kTargets, id, &Target::id);
  return it == kTargets.end() ? nullptr : &*it;
}

LayoutTable AllLayouts() {
  return LayoutTable(kLayouts);
}

const Layout* FindLayout(std::string_view id) {
  const auto it = std::ranges::find(kLayouts, id, &Layout::id);
  return it == kLayouts.end() ? nullptr : *it;
}

std::vector<const Layout*> LayoutsOfTarget(std::string_view target) {
  std::vector<const Layout*> layouts;
  for (const Layout* layout : kLayouts) {
    if (layout->target == target || layout->target == kAnyTarget) layouts.push_back(layout);
  }
  return layouts;
}

}  // namespace prepack
