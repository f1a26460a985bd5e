#include "prepack/layouts/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace prepack {
namespace {

constexpr std::string_view kCompressedTensors = "compressed-tensors";
constexpr std::string_view kOldCompressedTensors = "compressed-tensors-0.17";

std::string OneGroupSize(const PackRequest& request) {
  const bool channel = request.groups() == 1;
  return channel ? "one group per output channel"
                 : fmt::format("groups of {}", request.scheme.group_size);
}

std::string OneKindOfScales(const PackRequest& request) {
  const Scheme& scheme = request.scheme;
  if (scheme.granularity == Granularity::kBlock) {
    return fmt::format("blocks of {} x {}", scheme.scale_rows, scheme.group_size);
  }
  return fmt::format("one scale per module, {} activations",
                     scheme.activations.dynamic ? "dynamic" : "static");
}

constexpr std::array kTargets = {
    Target{.id = "vllm-cpu",
           .runtime = "vLLM on x86-64 CPUs",
           .eight_bit_experts = true,
           .runs_fused = true},
    Target{.id = "zentorch",
           .runtime = "vLLM with zentorch on AMD CPUs",
           .eight_bit_experts = true,
           .runs_fused = true},
    Target{.id = "vllm-arm",
           .runtime = "vLLM on Arm CPUs",
           .eight_bit_experts = true,
           .runs_fused = true},
    Target{"onednn", "programs that call oneDNN's matmul"},
    Target{.id = "kt",
           .runtime = "KTransformers (kt-kernel with SGLang)",
           .eight_bit_experts = true,
           .eight_bit_int8_experts = true},
    Target{kCompressedTensors, "compressed-tensors: vLLM, transformers, SGLang", false, true,
           "compressed-tensors"},
    Target{kOldCompressedTensors, "compressed-tensors before 0.18", false, true,
           "compressed-tensors"},
    Target{"gptq", "GPTQ: vLLM, transformers, GPTQModel, SGLang", false, true, "gptq"},
    Target{"gptq-v2", "GPTQ with zero points stored as they are (gptq_v2)", false, true, "gptq"},
    Target{"awq", "AWQ: vLLM, transformers, AutoAWQ, SGLang", false, true, "awq", OneGroupSize},
    Target{"auto-round", "AutoRound, packed as GPTQ", false, true, "auto-round"},
    Target{"auto-round-v2", "AutoRound, packed as GPTQ with zero points as they are", false, true,
           "auto-round"},
    Target{"auto-round-awq", "AutoRound, packed as AWQ", false, true, "auto-round"},
    Target{"fp8", "FP8 as DeepSeek and transformers store it", false, true, "fp8", OneKindOfScales},
    Target{"mxfp4", "MXFP4 experts as gpt-oss has them", false, true, "mxfp4"},
    Target{"modelopt", "NVIDIA ModelOpt: FP8, MXFP8, NVFP4", false, true, "modelopt"},
    Target{"bf16", "a checkpoint that is not quantized", false, true},
};

// One row per layout, in order of preference within a target.
constexpr auto kLayouts = std::to_array<const Layout*>({
    &kVllmWna16,        &kVllmInt4W4A8,     &kVllmInt8Vnni,    &kVllmInt8Plain,   &kVllmFp8Vnni,
    &kVllmFp8W8A8Vnni4, &kVllmFp8W8A8Plain, &kVllmMxfp4,       &kVllmBf16Vnni,    &kZentorchWoq,
    &kZentorchDa8w4,    &kZentorchInt8,     &kZentorchInt8Dlp, &kVllmArmInt4W4A8, &kVllmArmInt8Neon,
    &kVllmArmInt8Plain, &kVllmArmBf16Neon,  &kOneDnnW4A16,     &kOneDnnW4A8,      &kOneDnnW8A8,
    &kKtAmxInt8,        &kKtAmxInt4,        &kPlainBf16,       &kPlainBf16Conv1d, &kBf16Experts,
});

constexpr auto kCheckpointLayouts = std::to_array<const Layout*>({
    &kCtPacked,    &kCtPackedAligned, &kCtInt,         &kCtFloat,       &kCtNaive,
    &kCtMxfp8,     &kCtNvfp4,         &kCtMxfp4,       &kGptqV1,        &kGptqV2,
    &kAwqGemm,     &kAutoRoundGptq,   &kAutoRoundV2,   &kAutoRoundAwq,  &kFp8Blocks,
    &kMxfp4Stacks, &kModelOptFp8,     &kModelOptNvfp4, &kModelOptMxfp8,
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
  if (layout.target == target || layout.target == kAnyTarget) return true;
  // Older releases of compressed-tensors differ in one format only.
  return target == kOldCompressedTensors && layout.target == kCompressedTensors &&
         &layout != &kCtPacked;
}

}  // namespace prepack
