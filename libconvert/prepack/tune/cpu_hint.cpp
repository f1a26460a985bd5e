#include "prepack/tune/cpu_hint.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/convert/scheme_choice.h"
#include "prepack/doctor/doctor.h"
#include "prepack/tune/tune.h"

namespace prepack {
namespace {

enum class Grade : uint8_t { kHasKernel, kReferenceOnly, kDoesNotRun };

// The layouts of a plan on a CPU.
struct PlanOnCpu {
  std::string scheme = {};  // as --scheme takes it; empty: what the checkpoint says
  size_t packed = 0;        // modules
  std::set<const Layout*> layouts = {};
  Grade grade = Grade::kHasKernel;  // of the worst layout
  LayoutFit worst = {};
};

Grade GradeOf(const LayoutFit& fit) {
  if (fit.fit == CpuFit::kNot) return Grade::kDoesNotRun;
  const bool reference = fit.fit == CpuFit::kRunsWorse && fit.layout->reference_without_wants;
  return reference ? Grade::kReferenceOnly : Grade::kHasKernel;
}

std::optional<PlanOnCpu> Look(const Checkpoint& checkpoint, const QuantizedModel& model,
                              const PlanOptions& options, const CpuFeatures& features) {
  const Result<Plan> plan = MakePlan(checkpoint, model, options);
  if (!plan.ok()) return std::nullopt;
  PlanOnCpu on_cpu{.packed = plan->PackedModules()};
  for (const ModulePlan& module : plan->modules) {
    if (module.chosen == nullptr || !on_cpu.layouts.insert(module.chosen).second) continue;
    LayoutFit fit = FitOf(*module.chosen, features);
    const Grade grade = GradeOf(fit);
    if (on_cpu.worst.layout != nullptr && grade <= on_cpu.grade) continue;
    on_cpu.grade = grade;
    on_cpu.worst = std::move(fit);
  }
  if (on_cpu.layouts.empty()) return std::nullopt;
  return on_cpu;
}

// Those that pack as many modules.
std::vector<PlanOnCpu> Alternatives(const Checkpoint& checkpoint, const QuantizedModel& model,
                                    PlanOptions options, const CpuFeatures& features,
                                    const PlanOnCpu& own) {
  std::vector<PlanOnCpu> alternatives;
  for (const std::string_view scheme : {"w4a16", "w4a8", "w8a16", "w8a8", "bf16"}) {
    Result<SchemeChoice> choice = ParseSchemeChoice(scheme);
    if (!choice.ok()) continue;
    options.schemes = {*std::move(choice)};
    std::optional<PlanOnCpu> other = Look(checkpoint, model, options, features);
    if (!other || other->packed < own.packed || other->layouts == own.layouts) continue;
    other->scheme = scheme;
    alternatives.push_back(*std::move(other));
  }
  return alternatives;
}

bool UsesVnni(const Layout* layout) {
  return layout->needs.Has(CpuFeature::kVnni) || layout->wants.Has(CpuFeature::kVnni);
}

std::string HowToMeasure(const Checkpoint& checkpoint, std::string_view target) {
  return fmt::format(". To measure both: prepack tune {} --target {}",
                     Printable(checkpoint.path().string()), target);
}

std::string WhatLacks(const PlanOnCpu& own) {
  return own.grade == Grade::kDoesNotRun
             ? fmt::format("{} does not run on this CPU ({})", own.worst.layout->id, own.worst.why)
             : fmt::format("{} has only a slow reference implementation on this CPU ({})",
                           own.worst.layout->id, own.worst.why);
}

}  // namespace

std::string CpuHint(const Checkpoint& checkpoint, const QuantizedModel& model,
                    const PlanOptions& options, const CpuFeatures& features) {
  if (!options.schemes.empty() || !CanBeTuned(options.target)) return "";
  const std::optional<PlanOnCpu> own = Look(checkpoint, model, options, features);
  if (!own) return "";
  const std::vector<PlanOnCpu> others = Alternatives(checkpoint, model, options, features, *own);
  const auto better = std::ranges::min_element(others, {}, &PlanOnCpu::grade);
  if (better != others.end() && better->grade < own->grade) {
    return fmt::format("{}; --scheme {} gives {}, which {}{}", WhatLacks(*own), better->scheme,
                       better->worst.layout->id,
                       better->grade == Grade::kHasKernel ? "has a kernel for it" : "runs",
                       HowToMeasure(checkpoint, options.target));
  }
  if (own->grade != Grade::kHasKernel || std::ranges::any_of(own->layouts, UsesVnni)) return "";
  const auto vnni = std::ranges::find_if(others, [&](const PlanOnCpu& other) {
    return other.worst.fit == CpuFit::kRuns && std::ranges::all_of(other.layouts, UsesVnni);
  });
  if (vnni == others.end()) return "";
  return fmt::format(
      "{} leaves this CPU's VNNI idle; --scheme {} gives {}, which multiplies 8-bit integers with "
      "it and may be much faster, at some accuracy{}",
      own->worst.layout->id, vnni->scheme, vnni->worst.layout->id,
      HowToMeasure(checkpoint, options.target));
}

}  // namespace prepack
