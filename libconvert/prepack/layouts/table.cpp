#include "prepack/layouts/table.h"

#include <algorithm>
#include <array>

namespace prepack {
namespace {

constexpr std::array kTargets = {
    Target{"vllm-cpu", "vLLM on x86-64 CPUs", true},
    Target{"zentorch", "vLLM with zentorch on AMD CPUs", true},
    Target{"onednn", "programs that call oneDNN's matmul"},
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
    &kPlainBf16,
    &kPlainBf16Conv1d,
});

constexpr auto kCheckpointLayouts = std::to_array<const Layout*>({
    &kCtPacked,
    &kCtPackedAligned,
    &kCtInt,
    &kCtFloat,
    &kCtNaive,
    &kCtMxfp8,
    &kCtNvfp4,
    &kCtMxfp4,
    &kGptqV1,
    &kGptqV2,
    &kAwqGemm,
    &kAutoRoundGptq,
    &kAutoRoundAwq,
    &kFp8Blocks,
    &kModelOptFp8,
    &kModelOptNvfp4,
    &kModelOptMxfp8,
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

LayoutTable CheckpointLayouts() {
  return LayoutTable(kCheckpointLayouts);
}

const Layout* FindLayout(std::string_view id) {
  for (const LayoutTable& table : {AllLayouts(), CheckpointLayouts()}) {
    for (const Layout& layout : table) {
      if (layout.id == id) return &layout;
    }
  }
  return nullptr;
}

std::vector<const Layout*> LayoutsOfTarget(std::string_view target) {
  std::vector<const Layout*> layouts;
  for (const LayoutTable& table : {CheckpointLayouts(), AllLayouts()}) {
    for (const Layout& layout : table) {
      if (BelongsTo(layout, target)) layouts.push_back(&layout);
    }
  }
  return layouts;
}

bool BelongsTo(const Layout& layout, std::string_view target) {
  return layout.target == target || layout.target == kAnyTarget;
}

}  // namespace prepack
