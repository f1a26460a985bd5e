#include "prepack/tune/variants.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "prepack/convert/scheme_choice.h"

namespace prepack {
namespace {

struct SchemeRow {
  std::string_view name;
  uint32_t bits;  // of the weights that it is for; 0: all
};

// What the checkpoint says comes last: it mostly is one of the others.
constexpr std::array<SchemeRow, 5> kSchemes = {{
    {"w4a16", 4},
    {"w4a8", 4},
    {"w8a16", 8},
    {"w8a8", 8},
    {"auto", 0},
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

const ModulePlan& PlanOf(const Plan& plan, const QuantizedLinear& linear) {
  return *std::ranges::lower_bound(
      plan.modules, linear.module(), {},
      [](const ModulePlan& module) -> const std::string& { return module.linear->module(); });
}

// Do both pack the kind to the same bytes for the same arithmetic?
bool MakesTheSame(const TuneKind& kind, const TuneVariant& a, const TuneVariant& b) {
  return a.target() == b.target() && std::ranges::all_of(kind.shapes, [&](const TuneShape& shape) {
           const ModulePlan& one = PlanOf(*a.plan, shape.first());
           const ModulePlan& other = PlanOf(*b.plan, shape.first());
           return one.chosen == other.chosen && one.request == other.request;
         });
}

// Of the first shape that the variant has no layout for; empty: it has one for all.
std::string WhyNot(const TuneKind& kind, const TuneVariant& variant) {
  if (!variant.plan) return variant.failure.ToString();
  for (const TuneShape& shape : kind.shapes) {
    const ModulePlan& module = PlanOf(*variant.plan, shape.first());
    if (module.chosen == nullptr) return module.WhyRejected();
  }
  return "";
}

TuneCandidate Describe(const TuneKind& kind, const TuneVariant& variant) {
  TuneCandidate candidate{.target = variant.target(), .scheme = variant.scheme, .sqnr_db = {}};
  for (const TuneShape& shape : kind.shapes) {
    const ModulePlan& module = PlanOf(*variant.plan, shape.first());
    std::string layout(module.chosen->id);
    if (std::ranges::count(candidate.layouts, layout) == 0) {
      candidate.layouts.push_back(std::move(layout));
    }
    candidate.bytes += module.packed_bytes * shape.modules.size();
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
                                              const PlanOptions& common) {
  std::vector<TuneVariant> variants;
  for (const std::string& target : targets) {
    for (const SchemeRow& row : kSchemes) {
      TuneVariant variant{.scheme = std::string(row.name), .options = common};
      variant.options.target = target;
      if (std::ranges::none_of(kinds, [&](const TuneKind& kind) { return variant.IsFor(kind); })) {
        continue;
      }
      PREPACK_TRY_ASSIGN(SchemeChoice choice, ParseSchemeChoice(row.name));
      variant.options.schemes = {std::move(choice)};
      variant.failure = MakeVariantPlan(checkpoint, model, variant);
      if (!variant.failure.ok() && row.bits == 0) return variant.failure;
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
    const bool as_stored = BitsOf(variant.scheme) == 0;
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
