#include "prepack/tune/variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "prepack/base/text.h"
#include "prepack/convert/scheme_choice.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

struct SchemeRow {
  std::string_view name;
  uint32_t bits;  // of the weights that it is for; 0: all
};

constexpr std::string_view kPlain = "bf16";
constexpr std::string_view kAsStored = "auto";

// What the checkpoint says comes last: it mostly is one of the others.
constexpr std::array<SchemeRow, 6> kSchemes = {{
    {"w4a16", 4},
    {"w4a8", 4},
    {"w8a16", 8},
    {"w8a8", 8},
    {kPlain, 0},
    {kAsStored, 0},
}};

uint32_t BitsOf(std::string_view scheme) {
  return std::ranges::find(kSchemes, scheme, &SchemeRow::name)->bits;
}

// Plans for the form that oneDNN asks for here, if it can be asked.
Status MakeVariantPlan(const Checkpoint& checkpoint, const QuantizedModel& model,
                       TuneVariant& variant) {
  if (variant.target() == kOneDnnW8A8.target) {
    variant.options.onednn_form = OneDnnForm::kNative;
    Result<Plan> plan = MakePlan(checkpoint, model, variant.options);
    if (plan.ok()) {
      variant.plan = *std::move(plan);
      return {};
    }
    variant.options.onednn_form = OneDnnForm::kBlocked;
  }
  PREPACK_TRY_ASSIGN(Plan plan, MakePlan(checkpoint, model, variant.options));
  variant.plan = std::move(plan);
  return {};
}

// A model that was quantized to fit need not fit without.
void CheckFits(uint64_t memory_bytes, TuneVariant& variant) {
  if (!variant.plan || memory_bytes == 0 || variant.plan->output_bytes <= memory_bytes) return;
  variant.failure = Unsupported(
      "", fmt::format("in bf16 the model takes {}, and this machine has {} of memory",
                      HumanBytes(variant.plan->output_bytes), HumanBytes(memory_bytes)));
  variant.plan.reset();
}

const ModulePlan* FindPlan(const Plan& plan, std::string_view module) {
  const auto found = std::ranges::lower_bound(
      plan.modules, module, {},
      [](const ModulePlan& one) -> std::string_view { return one.linear->module(); });
  return found != plan.modules.end() && found->linear->module() == module ? &*found : nullptr;
}

// What a unit is packed to: itself, or each of its modules.
std::vector<const ModulePlan*> PlansOf(const Plan& plan, const TuneUnit& unit) {
  if (const ModulePlan* whole = FindPlan(plan, unit.name)) return {whole};
  std::vector<const ModulePlan*> plans;
  for (const QuantizedLinear* linear : unit.modules) {
    plans.push_back(FindPlan(plan, linear->module()));
  }
  return plans;
}

// Do both pack the kind to the same bytes for the same arithmetic?
bool MakesTheSame(const TuneKind& kind, const TuneVariant& a, const TuneVariant& b) {
  return a.target() == b.target() && std::ranges::all_of(kind.shapes, [&](const TuneShape& shape) {
           return std::ranges::equal(
               PlansOf(*a.plan, shape.units.front()), PlansOf(*b.plan, shape.units.front()),
               [](const ModulePlan* one, const ModulePlan* other) {
                 return one->chosen == other->chosen && one->request == other->request;
               });
         });
}

// Why the variant's runtime has no op for the experts, although a layout takes each of them.
std::string WhyNoMixture(const TuneVariant& variant,
                         const std::vector<const ModulePlan*>& modules) {
  if (!variant.plan->target->runs_fused) return "";
  const Layout* const layout = modules.front()->chosen;
  const bool differ = std::ranges::any_of(
      modules, [&](const ModulePlan* module) { return module->chosen != layout; });
  if (differ) return "the experts of a layer get different layouts, and one op runs them all";
  if (layout->stacks_experts) return "";
  return fmt::format("{}: its runtime has no op for experts that reads it", layout->id);
}

// Of the first shape that the variant has no layout for; empty: it has one for all.
std::string WhyNot(const TuneKind& kind, const TuneVariant& variant) {
  if (!variant.plan) return variant.failure.ToString();
  for (const TuneShape& shape : kind.shapes) {
    const std::vector<const ModulePlan*> modules = PlansOf(*variant.plan, shape.units.front());
    for (const ModulePlan* module : modules) {
      if (module->chosen == nullptr) return module->WhyRejected();
    }
    if (kind.sort != TuneUnitSort::kMixture) continue;
    if (std::string why = WhyNoMixture(variant, modules); !why.empty()) return why;
  }
  return "";
}

TuneCandidate Describe(const TuneKind& kind, const TuneVariant& variant) {
  TuneCandidate candidate{.target = variant.target(), .scheme = variant.scheme, .sqnr_db = {}};
  for (const TuneShape& shape : kind.shapes) {
    for (const ModulePlan* module : PlansOf(*variant.plan, shape.units.front())) {
      std::string layout(module->chosen->id);
      if (std::ranges::count(candidate.layouts, layout) == 0) {
        candidate.layouts.push_back(std::move(layout));
      }
      candidate.bytes += module->packed_bytes * shape.units.size();
    }
  }
  return candidate;
}

}  // namespace

bool TuneVariant::IsFor(const TuneKind& kind) const {
  const uint32_t bits = BitsOf(scheme);
  return bits == 0 || bits == kind.bits;
}

Result<std::vector<TuneVariant>> PlanVariants(const Checkpoint& checkpoint,
                                              const QuantizedModel& model,
                                              const std::vector<TuneKind>& kinds,
                                              const std::vector<std::string>& targets,
                                              const PlanOptions& common, uint64_t memory_bytes) {
  std::vector<TuneVariant> variants;
  for (const std::string& target : targets) {
    for (const SchemeRow& row : kSchemes) {
      TuneVariant variant{.scheme = std::string(row.name), .options = common};
      variant.options.target = target;
      variant.options.fuse = FindTarget(target)->runs_fused;
      variant.options.fuse_experts = false;  // an op for experts is given some of them, repeated
      if (std::ranges::none_of(kinds, [&](const TuneKind& kind) { return variant.IsFor(kind); })) {
        continue;
      }
      PREPACK_TRY_ASSIGN(SchemeChoice choice, ParseSchemeChoice(row.name));
      variant.options.schemes = {std::move(choice)};
      variant.failure = MakeVariantPlan(checkpoint, model, variant);
      if (!variant.failure.ok() && row.name == kAsStored) return variant.failure;
      if (row.name == kPlain) CheckFits(memory_bytes, variant);
      variants.push_back(std::move(variant));
    }
  }
  return variants;
}

KindCandidates CandidatesOf(const TuneKind& kind, const std::vector<TuneVariant>& variants) {
  KindCandidates result;
  for (size_t i = 0; i < variants.size(); ++i) {
    const TuneVariant& variant = variants[i];
    if (!variant.IsFor(kind)) continue;
    const bool as_stored = variant.scheme == kAsStored;
    if (std::string why = WhyNot(kind, variant); !why.empty()) {
      result.rejections.push_back({variant.target(), variant.scheme, std::move(why)});
      continue;
    }
    const auto same = std::ranges::find_if(result.candidates, [&](const KindCandidate& other) {
      return MakesTheSame(kind, variants[other.variant], variant);
    });
    if (same != result.candidates.end()) {
      same->candidate.as_stored = same->candidate.as_stored || as_stored;
      continue;
    }
    TuneCandidate candidate = Describe(kind, variant);
    candidate.as_stored = as_stored;
    result.candidates.push_back({.candidate = std::move(candidate), .variant = i});
  }
  return result;
}

}  // namespace prepack
