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

constexpr auto kLayouts = std::to_array<const Layout*>({
#define PREPACK_LAYOUT(row, model, rounding) &(row),
#include "prepack/layouts/layouts.inc"
});

constexpr auto kCheckpointLayouts = std::to_array<const Layout*>({
#define PREPACK_CHECKPOINT_LAYOUT(row) &(row),
#include "prepack/layouts/layouts.inc"
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
