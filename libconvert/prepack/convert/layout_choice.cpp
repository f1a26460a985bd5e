#include "prepack/convert/layout_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/convert/module_request.h"
#include "prepack/layouts/table.h"

namespace prepack {

std::string ChosenForm::Note() const {
  if (!origin || !origin->IsReference()) return "";
  return fmt::format(
      "oneDNN {} has only a reference implementation for this on this machine ({}): right, but "
      "slow",
      origin->version, origin->implementation);
}

Result<ChosenForm> ChooseOneDnnForm(OneDnnForm form, const PackRequest& request) {
  if (form == OneDnnForm::kBlocked) return ChosenForm{.weights_desc = DefaultW8A8Desc(request)};
  if (form == OneDnnForm::kPlain) {
    return ChosenForm{.weights_desc = PlainDesc(request.k, request.n)};
  }
  PREPACK_TRY_ASSIGN(OneDnnAnswer answer, AskOneDnn(request));
  return ChosenForm{.weights_desc = answer.weights_desc, .origin = answer.origin};
}

namespace {

// Does the module go with what the config of the checkpoint says of the whole model?
Eligibility GoesWithModel(const Plan& plan, const PackRequest& request) {
  if (plan.target->model_wide == nullptr) return Eligibility::Yes();
  const std::string own = plan.target->model_wide(request);
  if (own == plan.model_wide) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("{}: the config of the format says it once for all modules, and most have {}",
                  own, plan.model_wide));
}

// Can the class of the model load its experts from the layout?
Eligibility HasStacksForClass(const Plan& plan, const Layout& layout, const PackRequest& request) {
  const bool wants_stacks = layout.checkpoint && layout.stacks_experts;
  if (wants_stacks && plan.class_with_stacks.empty()) {
    return Eligibility::No(
        fmt::format("{} is for models whose class reads the experts of a layer as one tensor "
                    "(gpt-oss)",
                    layout.id));
  }
  if (plan.class_with_stacks.empty() || !request.expert() || request.stacked()) {
    return Eligibility::Yes();
  }
  if (layout.stacks_experts) {
    return Eligibility::No(
        fmt::format("the class of the model ({}) reads the experts of a layer as one tensor, and "
                    "these stay apart (`prepack plan` says why)",
                    plan.class_with_stacks));
  }
  return Eligibility::No(
      fmt::format("the class of the model ({}) reads the experts of a layer as one tensor: {} has "
                  "them one by one",
                  plan.class_with_stacks, layout.id));
}

// Asks the layouts of the target in order and chooses the first that takes the module.
void AskLayouts(const Plan& plan, LayoutChoice& choice) {
  for (const Layout* layout : plan.layouts) {
    if (!layout->offered) continue;
    if (layout->for_dequantized != choice.dequantizes) continue;
    // What is asked for is what any runtime loads, on any CPU, and packs itself where that helps.
    if (choice.bf16_was_asked && layout->target != kAnyTarget) continue;
    Eligibility verdict = layout->Takes(choice.request);
    if (verdict.ok && layout->checkpoint) verdict = GoesWithModel(plan, choice.request);
    if (verdict.ok) verdict = HasStacksForClass(plan, *layout, choice.request);
    choice.candidates.push_back({layout, std::move(verdict)});
    if (choice.chosen == nullptr && choice.candidates.back().verdict.ok) choice.chosen = layout;
  }
}

// The module as bf16, for the layouts that take bf16.
void Dequantize(const Plan& plan, LayoutChoice& choice) {
  choice.dequantizes = true;
  choice.request = InBf16(choice.request);
  AskLayouts(plan, choice);
}

// Says how the kernels' arithmetic differs from what the checkpoint says, and what no op can run.
std::string NoteOf(const LayoutChoice& choice) {
  if (choice.chosen == nullptr) return "";
  const ActivationScheme& wanted = choice.request.scheme.activations;
  std::vector<std::string> notes;
  if (choice.stored_activations != wanted) {
    notes.push_back(fmt::format("the checkpoint says activations: {}; here: {}",
                                DescribeActivations(choice.stored_activations),
                                DescribeActivations(wanted)));
  }
  if (choice.request.expert() && !choice.chosen->expert_op.Of(choice.request)) {
    notes.emplace_back("the runtime has no op that runs experts in this layout");
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

// Chooses the form if the layout has several.
Status ChooseForm(OneDnnForm form, LayoutChoice& choice) {
  if (choice.chosen == nullptr || !choice.chosen->FormIsAsked()) return {};
  PREPACK_TRY_ASSIGN(ChosenForm chosen, ChooseOneDnnForm(form, choice.request));
  choice.request.weights_desc = chosen.weights_desc;
  choice.onednn = chosen.origin;
  const std::string note = chosen.Note();
  if (!note.empty() && !choice.note.empty()) choice.note += "; ";
  choice.note += note;
  return {};
}

}  // namespace

Result<LayoutChoice> ChooseLayout(const QuantizedLinear& linear, const PackRequest& asked,
                                  const PlanOptions& options, const Plan& plan) {
  LayoutChoice choice;
  choice.asked = asked;
  choice.stored_activations = linear.scheme().activations;
  choice.request = asked;
  // Asked for, or weights of a packed folder that are bf16 already.
  choice.dequantizes = asked.scheme.code == CodeType::kBF16;
  choice.bf16_was_asked = choice.dequantizes && linear.scheme().code != CodeType::kBF16;
  AskLayouts(plan, choice);
  const bool may_dequantize = options.fallback == Fallback::kDequantize && !choice.dequantizes;
  if (choice.chosen == nullptr && may_dequantize) Dequantize(plan, choice);
  choice.note = NoteOf(choice);
  if (Status status = ChooseForm(options.onednn_form, choice); !status.ok()) {
    return std::move(status).In(fmt::format("module {}", linear.module()));
  }
  if (choice.chosen != nullptr) choice.parts = choice.chosen->Parts(choice.request);
  return choice;
}

}  // namespace prepack
