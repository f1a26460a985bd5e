#include "convert/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/suggest.h"

namespace prepack {
namespace {

// The dtype that the model computes in, as transformers writes it: `dtype`, before 2025
// `torch_dtype`; multi-modal models nest it in `text_config`.
std::optional<DType> DTypeOfConfig(const Json& config) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_string()) continue;
    const auto& name = it->get_ref<const std::string&>();
    if (name == "bfloat16") return DType::kBF16;
    if (name == "float16") return DType::kF16;
    if (name == "float32") return DType::kF32;
  }
  const auto text = config.find("text_config");
  if (text != config.end() && text->is_object()) return DTypeOfConfig(*text);
  return std::nullopt;
}

std::optional<DType> BiasDType(const Checkpoint& checkpoint, const std::string& module) {
  const StoredTensor* bias = checkpoint.Find(module + ".bias");
  return bias == nullptr ? std::nullopt : std::optional<DType>(bias->dtype);
}

ModulePlan PlanModule(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                      const Plan& plan) {
  ModulePlan module;
  module.linear = &linear;
  module.request = {.scheme = linear.scheme(),
                    .n = linear.n(),
                    .k = linear.k(),
                    .activation_dtype = plan.activation_dtype,
                    .stored_scale_dtype = linear.stored_scale_dtype(),
                    .bias_dtype = BiasDType(checkpoint, linear.module()),
                    .reordered = !linear.k_order().empty()};
  module.packed_bytes = linear.source_bytes();
  for (const Layout* layout : LayoutsOfTarget(plan.target->id)) {
    module.candidates.push_back({layout, layout->eligible(module.request)});
    if (module.chosen != nullptr || !module.candidates.back().verdict.ok) continue;
    module.chosen = layout;
    module.parts = layout->parts(module.request);
    module.packed_bytes = 0;
    for (const PartSpec& part : module.parts) {
      module.packed_bytes += TensorBytes(part.dtype, part.shape).value_or(0);
    }
  }
  return module;
}

Result<const Target*> TargetOrError(const std::string& id) {
  if (const Target* target = FindTarget(id)) return target;
  std::vector<std::string> known;
  for (const Target& target : AllTargets()) known.emplace_back(target.id);
  return Usage("--target", "unknown target")
      .Found(id)
      .Expected(fmt::format("{}", fmt::join(known, ", ")))
      .Hint(DidYouMean(id, known));
}

}  // namespace

std::string ModulePlan::WhyKept() const {
  std::vector<std::string> reasons;
  for (const Candidate& candidate : candidates) {
    reasons.push_back(fmt::format("{}: {}", candidate.layout->id, candidate.verdict.reason));
  }
  return fmt::format("{}", fmt::join(reasons, "; "));
}

size_t Plan::PackedModules() const {
  return static_cast<size_t>(
      std::ranges::count_if(modules, [](const ModulePlan& m) { return m.chosen != nullptr; }));
}

Result<Plan> MakePlan(const Checkpoint& checkpoint, const QuantizedModel& model,
                      const PlanOptions& options) {
  Result<const Target*> target = TargetOrError(options.target);
  if (!target.ok()) return target.status();

  Plan plan;
  plan.target = *target;
  plan.activation_dtype =
      options.activation_dtype.value_or(DTypeOfConfig(checkpoint.config()).value_or(DType::kBF16));
  plan.source_bytes = checkpoint.total_bytes();
  plan.output_bytes = plan.source_bytes;
  for (const auto& linear : model.modules) {
    ModulePlan module = PlanModule(checkpoint, *linear, plan);
    plan.output_bytes += module.packed_bytes - linear->source_bytes();
    plan.modules.push_back(std::move(module));
  }
  return plan;
}

Status CheckPlan(const Plan& plan, Fallback fallback) {
  if (plan.modules.empty()) {
    return Unsupported("", "the checkpoint has no quantized module: there is nothing to pack");
  }
  const bool nothing_packed = plan.PackedModules() == 0;
  if (!nothing_packed && fallback == Fallback::kKeep) return {};
  for (const ModulePlan& module : plan.modules) {
    if (module.chosen != nullptr) continue;
    return Unsupported(fmt::format("module {}", module.linear->module()),
                       fmt::format("no layout of {} takes {}: {}", plan.target->id,
                                   nothing_packed ? "any module of this checkpoint" : "it",
                                   module.WhyKept()))
        .Hint(nothing_packed ? "`prepack targets` lists what each layout takes"
                             : "--fallback keep leaves such modules as they are stored");
  }
  return {};
}

std::optional<DType> ActivationDTypeFromName(std::string_view name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "f16") return DType::kF16;
  if (name == "f32") return DType::kF32;
  return std::nullopt;
}

std::string_view ActivationDTypeName(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    default:
      return "f32";
  }
}

}  // namespace prepack
