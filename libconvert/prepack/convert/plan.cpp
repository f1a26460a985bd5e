// Chooses a layout for every module. Modules that are alike share one LayoutChoice: a mixture of
// experts has tens of thousands of modules but a few kinds, and asking every layout about every
// module would take longer than reading the headers.

#include "prepack/convert/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/model_config.h"
#include "prepack/convert/fused_modules.h"
#include "prepack/convert/layout_choice.h"
#include "prepack/convert/module_request.h"
#include "prepack/convert/whole_mixtures.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/layouts/table.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/plain_modules.h"
#include "prepack/packed/small_parts.h"
#include "prepack/packed/split_experts.h"

namespace prepack {

namespace {

// The choice for a module: that of a similar one, or a new one.
Result<const LayoutChoice*> ChoiceFor(const QuantizedLinear& linear, const PackRequest& asked,
                                      const PlanOptions& options, Plan& plan) {
  const std::pair size(asked.n, asked.k);
  const auto [begin, end] = plan.choices.equal_range(size);
  for (auto it = begin; it != end; ++it) {
    const LayoutChoice& known = it->second;
    if (known.asked == asked && known.stored_activations == linear.scheme().activations) {
      return &known;
    }
  }
  PREPACK_TRY_ASSIGN(LayoutChoice choice, ChooseLayout(linear, asked, options, plan));
  return &plan.choices.emplace(size, std::move(choice))->second;
}

void CountBytes(std::span<const BiasPlace> biases, const LayoutChoice& choice, ModulePlan& module) {
  module.source_bytes = module.linear->source_bytes();
  module.packed_bytes = module.source_bytes;
  if (choice.chosen == nullptr) return;
  for (const BiasPlace& bias : biases) module.source_bytes += bias.bytes;
  module.packed_bytes = choice.PartBytes();
}

// What becomes of the module if its kernel computes so.
Result<ModulePlan> PlanWith(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                            const Arithmetic& arithmetic, const PlanOptions& options, Plan& plan) {
  const std::vector<BiasPlace> biases = FindBiases(checkpoint, linear);
  if (!biases.empty()) PREPACK_TRY(CheckBiases(checkpoint, linear));
  PREPACK_TRY_ASSIGN(const PackRequest asked,
                     RequestFor(checkpoint, linear, biases, arithmetic, options, plan));
  PREPACK_TRY_ASSIGN(const LayoutChoice* choice, ChoiceFor(linear, asked, options, plan));
  ModulePlan module(linear, *choice);
  if (choice->dequantizes && linear.scheme().code != CodeType::kBF16) {
    module.dequantized = Dequantized(linear);
  }
  const bool as_stored = choice->chosen != nullptr && choice->chosen->checkpoint;
  if (as_stored && linear.reordered()) module.in_model_order = linear.InModelOrder();
  CountBytes(biases, *choice, module);
  return module;
}

void AddModule(ModulePlan module, Plan& plan) {
  plan.output_bytes += module.packed_bytes - module.source_bytes;
  plan.modules.push_back(std::move(module));
}

Status PlanModule(const Checkpoint& checkpoint, const QuantizedLinear& linear,
                  const PlanOptions& options, SchemeChooser& schemes, Plan& plan) {
  Arithmetic arithmetic{.activations = linear.scheme().activations};
  if (!plan.target->checkpoint) {
    const std::string_view whole = ParseNodeShare(linear.module()).module;
    PREPACK_TRY_ASSIGN(arithmetic, schemes.ArithmeticOf(whole, linear.scheme()));
  }
  PREPACK_TRY_ASSIGN(ModulePlan module, PlanWith(checkpoint, linear, arithmetic, options, plan));
  AddModule(std::move(module), plan);
  return {};
}

// The arithmetic that all members of a fused module get; none if it differs.
Result<std::optional<Arithmetic>> CommonArithmetic(const QuantizedLinear& fused,
                                                   SchemeChooser& schemes) {
  std::optional<Arithmetic> common;
  for (const QuantizedLinear* member : fused.members()) {
    PREPACK_TRY_ASSIGN(const Arithmetic own,
                       schemes.ArithmeticOf(member->module(), member->scheme()));
    if (member != fused.members().front() && own != *common) {
      return std::optional<Arithmetic>();
    }
    common = own;
  }
  return common;
}

// Plans a fused module, or records why its members stay separate.
Result<std::optional<ModulePlan>> PlanFused(const Checkpoint& checkpoint,
                                            const QuantizedLinear& fused,
                                            const PlanOptions& options, SchemeChooser& schemes,
                                            Plan& plan) {
  PREPACK_TRY_ASSIGN(const std::optional<Arithmetic> arithmetic, CommonArithmetic(fused, schemes));
  std::optional<ModulePlan> planned;
  if (!arithmetic) {
    plan.apart.emplace(fused.module(), "--scheme gives them different arithmetic");
    return planned;
  }
  // Gate and up of single experts would follow each other.
  const bool has_halves = fused.members().size() > std::max<uint64_t>(fused.stacked_experts(), 1);
  if (has_halves && plan.class_with_stacks == kGptOss) {
    plan.apart.emplace(
        fused.module(),
        "the class of gpt-oss has the output channels of gate and up in turn, and the checkpoint "
        "has them apart");
    return planned;
  }
  PREPACK_TRY_ASSIGN(ModulePlan module, PlanWith(checkpoint, fused, *arithmetic, options, plan));
  if (module.chosen == nullptr) {
    plan.apart.emplace(fused.module(), module.WhyRejected());
  } else {
    planned.emplace(std::move(module));
  }
  return planned;
}

// One call of an op runs all experts of a mixture: if one stack of it cannot be packed, neither is
// the other.
std::string WhyMixtureStaysApart(const QuantizedLinear& fused, const Plan& plan) {
  if (fused.stacked_experts() == 0) return "";
  const std::string_view mixture = ModuleOf(fused.module());
  const auto other = std::ranges::find_if(plan.apart, [&](const auto& apart) {
    return apart.first != fused.module() && ModuleOf(apart.first) == mixture;
  });
  if (other == plan.apart.end()) return "";
  return fmt::format("{} of the same experts stays apart: {}", LastPart(other->first),
                     other->second);
}

// Has the runtime an op that reads all experts of a layer as one tensor?
bool HasStacks(const Plan& plan) {
  return std::ranges::any_of(plan.layouts, &Layout::stacks_experts);
}

// Plans what can be fused, and returns the modules of the model that this covers, ascending by
// address.
Result<std::vector<const QuantizedLinear*>> PlanAllFused(const Checkpoint& checkpoint,
                                                         const QuantizedModel& model,
                                                         const PlanOptions& options,
                                                         SchemeChooser& schemes, Plan& plan) {
  PREPACK_TRY_ASSIGN(FusedModules fused,
                     FuseSiblings(checkpoint, model, options.fuse_experts && HasStacks(plan),
                                  options.fuse, plan.target->HoldsNoCodes()));
  plan.apart = std::move(fused.apart);
  std::vector<std::optional<ModulePlan>> planned;
  planned.reserve(fused.modules.size());
  for (const auto& module : fused.modules) {
    PREPACK_TRY_ASSIGN(std::optional<ModulePlan> one,
                       PlanFused(checkpoint, *module, options, schemes, plan));
    planned.push_back(std::move(one));
  }
  for (size_t i = 0; i < planned.size(); ++i) {
    if (!planned[i]) continue;
    if (std::string why = WhyMixtureStaysApart(*fused.modules[i], plan); !why.empty()) {
      plan.apart.emplace(fused.modules[i]->module(), std::move(why));
      continue;
    }
    plan.fused.push_back(std::move(fused.modules[i]));
    AddModule(*std::move(planned[i]), plan);
  }
  std::vector<const QuantizedLinear*> taken;
  for (const auto& module : plan.fused) {
    taken.insert(taken.end(), module->members().begin(), module->members().end());
  }
  std::ranges::sort(taken);
  return taken;
}

// By moving them into a new vector: they hold references and cannot be assigned.
void SortByName(std::vector<ModulePlan>& modules) {
  std::vector<ModulePlan*> order;
  order.reserve(modules.size());
  for (ModulePlan& module : modules) order.push_back(&module);
  std::ranges::sort(order, {}, [](const ModulePlan* module) { return module->linear->module(); });
  std::vector<ModulePlan> sorted;
  sorted.reserve(modules.size());
  for (ModulePlan* module : order) sorted.push_back(std::move(*module));
  modules = std::move(sorted);
}

// What one thread needs for a tile and for a strip of the module.
uint64_t ThreadMemory(const ModulePlan& module) {
  const QuantizedLinear& weights = module.weights();
  const TileShape shape = TileShapeFor(weights, module.chosen->cut(module.request));
  const PanelRange tile = TileGrid(weights.n(), weights.k(), shape).At(0);
  const uint64_t panel = shape.panel_rows * PanelRowBytes(weights.scheme().code, shape.panel_cols);
  uint64_t bytes = panel + PlacedBytes(module.chosen->place_weight(module.request, tile));
  const uint64_t strip = std::min(StripRows(*module.chosen, module.request), weights.n());
  bytes += strip * weights.groups() * (sizeof(float) + sizeof(uint8_t));
  // Act-order needs all input channels of a panel's rows at once.
  if (weights.reordered()) {
    bytes += shape.panel_rows * PanelRowBytes(weights.scheme().code, weights.k());
  }
  // Dequantizing holds whole rows of codes and floats.
  if (module.dequantized) bytes += shape.panel_rows * weights.k() * (sizeof(float) + 1);
  return bytes;
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

// The modules that are planned one by one: a checkpoint has experts so.
Result<std::vector<const QuantizedLinear*>> ModulesOf(const Checkpoint& checkpoint,
                                                      const QuantizedModel& model,
                                                      std::span<const QuantizedLinear* const> taken,
                                                      const PlanOptions& options, Plan& plan) {
  if (!options.only.empty()) {
    return std::vector<const QuantizedLinear*>(options.only.begin(), options.only.end());
  }
  if (plan.target->checkpoint) {
    PREPACK_TRY_ASSIGN(SplitModules split, SplitExperts(checkpoint.config(), model, taken));
    plan.pieces = std::move(split.pieces);
    return std::move(split.all);
  }
  std::vector<const QuantizedLinear*> modules;
  modules.reserve(model.modules.size());
  for (const auto& linear : model.modules) {
    if (!std::ranges::binary_search(taken, linear.get())) modules.push_back(linear.get());
  }
  return modules;
}

// What most modules that a layout of the target takes have in common.
Result<std::string> MostCommonOf(const Checkpoint& checkpoint,
                                 const std::vector<const QuantizedLinear*>& modules,
                                 const PlanOptions& options, Plan& plan) {
  std::map<std::string, size_t> counts;
  for (const QuantizedLinear* linear : modules) {
    PREPACK_TRY_ASSIGN(const PackRequest request,
                       RequestFor(checkpoint, *linear, FindBiases(checkpoint, *linear),
                                  {linear->scheme().activations}, options, plan));
    plan.facts.emplace(linear, request.facts);
    if (std::ranges::any_of(plan.layouts, [&](const Layout* layout) {
          return layout->checkpoint && layout->Takes(request).ok;
        })) {
      ++counts[plan.target->model_wide(request)];
    }
  }
  const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
  return most == counts.end() ? std::string() : most->first;
}

// A checkpoint says what its source says.
Status CheckOptionsAreForTarget(const PlanOptions& options, const Target& target) {
  if (!target.checkpoint) return {};
  const auto refuse = [&](std::string_view option, std::string_view why) {
    return Usage(option, why)
        .Found(fmt::format("--target {}", target.id))
        .Hint("Leave the option out, or choose a target that kernels read");
  };
  if (!options.schemes.empty()) {
    return refuse("--scheme", "a checkpoint keeps the activations of its source");
  }
  if (options.fuse) return refuse("--fuse", "a checkpoint has one module for each layer");
  if (options.exact_scales) return refuse("--scales", "a checkpoint's scales are always exact");
  return {};
}

Status CheckFormIsForTarget(const PlanOptions& options, const Target& target) {
  if (options.onednn_form == OneDnnForm::kBlocked || target.id == kOneDnnW8A8.target) return {};
  return Usage("--onednn-form", "this option is only for another target")
      .Found(fmt::format("--target {}", target.id))
      .Expected(fmt::format("--target {}", kOneDnnW8A8.target));
}

// Has the runtime a packed form for linear layers in bf16, which it would make at every start?
bool PacksPlain(const Layout& layout) {
  return layout.for_dequantized && layout.target != kAnyTarget && !layout.for_experts;
}

DType ActivationsOf(const PlanOptions& options, const Checkpoint& checkpoint) {
  return options.activation_dtype.value_or(
      DTypeOfConfig(checkpoint.config()).value_or(DType::kBF16));
}

// "A, B: the reason; C: another one".
std::string WhatTheyLack(const std::vector<Rejection>& rejections) {
  std::string text;
  for (const Rejection& rejection : rejections) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", fmt::join(rejection.layouts, ", "),
                        rejection.verdict->reason);
  }
  return text;
}

// "the codes have 3 bits: A and B read 4-bit codes; C reads signed 8-bit codes": what the weights
// are, which all reasons begin with, is said once.
std::string WhatTheyRead(const std::vector<Rejection>& rejections) {
  const std::string& codes = rejections.front().verdict->codes;
  std::string text = codes;
  for (const Rejection& rejection : rejections) {
    if (codes.empty() || rejection.verdict->codes != codes) return WhatTheyLack(rejections);
    text += fmt::format(
        "{} {} {} {}", text == codes ? ":" : ";", fmt::join(rejection.layouts, " and "),
        rejection.layouts.size() == 1 ? "reads" : "read", rejection.verdict->kernel_reads);
  }
  return text;
}

}  // namespace

uint64_t LayoutChoice::PartBytes() const {
  uint64_t bytes = 0;
  for (const PartSpec& part : parts) bytes += TensorBytes(part.dtype, part.shape).value_or(0);
  return bytes;
}

ModulePlan::ModulePlan(const QuantizedLinear& module, const LayoutChoice& choice)
    : linear(&module),
      request(choice.request),
      onednn(choice.onednn),
      candidates(choice.candidates),
      parts(choice.parts),
      note(choice.note),
      chosen(choice.chosen),
      bf16_was_asked(choice.bf16_was_asked) {}

std::vector<const StoredTensor*> ModulePlan::ReplacedTensors(const Checkpoint& checkpoint) const {
  return prepack::ReplacedTensors(checkpoint, *linear, request.bias_dtype.has_value());
}

std::vector<Rejection> ModulePlan::Rejections() const {
  const bool all_other = std::ranges::all_of(candidates, [](const Candidate& candidate) {
    return candidate.verdict.ok || candidate.verdict.other_weights;
  });
  std::vector<Rejection> rejections;
  for (const Candidate& candidate : candidates) {
    const Eligibility& verdict = candidate.verdict;
    if (verdict.ok || (verdict.other_weights && !all_other)) continue;
    const auto same = std::ranges::find_if(rejections, [&](const Rejection& rejection) {
      return rejection.verdict->reason == verdict.reason;
    });
    if (same == rejections.end()) {
      rejections.push_back({&verdict, {candidate.layout->id}});
    } else {
      same->layouts.push_back(candidate.layout->id);
    }
  }
  return rejections;
}

std::string ModulePlan::WhyRejected() const {
  if (chosen != nullptr && bf16_was_asked) return "--scheme asks for bf16";
  const std::vector<Rejection> rejections = Rejections();
  const bool holds_none = std::ranges::all_of(
      candidates, [](const Candidate& candidate) { return candidate.layout->for_dequantized; });
  if (chosen != nullptr && holds_none) return "the target holds no quantized weights";
  if (rejections.empty()) return dequantized ? "the target holds no quantized weights" : "";
  return WhatTheyRead(rejections);
}

size_t Plan::PackedModules() const {
  return static_cast<size_t>(
      std::ranges::count_if(modules, [](const ModulePlan& m) { return m.chosen != nullptr; }));
}

uint64_t Plan::PeakMemory(unsigned threads) const {
  uint64_t largest = 0;
  for (const ModulePlan& module : modules) {
    if (module.chosen != nullptr) largest = std::max(largest, ThreadMemory(module));
  }
  return threads * largest;
}

Result<QuantizedModel> ReadModelToPlan(const Checkpoint& checkpoint, const PlanOptions& options) {
  PREPACK_TRY_ASSIGN(QuantizedModel model, ReadSourceModel(checkpoint, options.accepted));
  const bool packs_plain = std::ranges::any_of(
      LayoutsOfTarget(options.target), [](const Layout* layout) { return PacksPlain(*layout); });
  const bool in_bf16 = ActivationsOf(options, checkpoint) == DType::kBF16;
  if (options.fuse && packs_plain && in_bf16) AddPlainModules(checkpoint, model);
  return model;
}

Result<Plan> MakePlan(const Checkpoint& checkpoint, const QuantizedModel& model,
                      const PlanOptions& wanted) {
  PREPACK_TRY_ASSIGN(const Target* target, TargetOrError(wanted.target));
  PlanOptions options = wanted;
  if (target->HoldsNoCodes()) options.fallback = Fallback::kDequantize;
  // Blocks of ggml are nothing that a folder could keep.
  if (checkpoint.origin() != nullptr && options.fallback == Fallback::kKeep) {
    options.fallback = Fallback::kError;
  }
  PREPACK_TRY(CheckFormIsForTarget(options, *target));
  PREPACK_TRY(CheckNodesAreForTarget(options, *target));
  PREPACK_TRY(CheckOptionsAreForTarget(options, *target));
  PREPACK_TRY_ASSIGN(SchemeChooser schemes, SchemeChooser::Make(options.schemes, *target));

  Plan plan;
  plan.target = target;
  plan.layouts = LayoutsOfTarget(target->id);
  plan.fallback = options.fallback;
  plan.activation_dtype = ActivationsOf(options, checkpoint);
  plan.source_bytes = checkpoint.total_bytes();
  plan.output_bytes = plan.source_bytes;
  plan.modules.reserve(options.only.empty() ? model.modules.size() : options.only.size());
  if (target->checkpoint) {
    plan.class_with_stacks = ClassWithStacks(checkpoint.config(), target->HoldsNoCodes());
  }
  std::vector<const QuantizedLinear*> taken;
  if (options.fuse || !plan.class_with_stacks.empty()) {
    auto fused = PlanAllFused(checkpoint, model, options, schemes, plan);
    if (!fused.ok()) return fused.status();
    taken = *std::move(fused);
  }
  PREPACK_TRY_ASSIGN(std::vector<const QuantizedLinear*> modules,
                     ModulesOf(checkpoint, model, taken, options, plan));
  if (target->model_wide != nullptr) {
    PREPACK_TRY_ASSIGN(plan.model_wide, MostCommonOf(checkpoint, modules, options, plan));
  }
  PREPACK_TRY_ASSIGN(plan.mixture_faults,
                     FindMixtureFaults(checkpoint, modules, options, schemes, plan));
  PREPACK_TRY(CutMixtures(options.numa_nodes, modules, plan));
  for (const QuantizedLinear* linear : modules) {
    PREPACK_TRY(PlanModule(checkpoint, *linear, options, schemes, plan));
  }
  if (!plan.fused.empty() || !plan.pieces.empty()) SortByName(plan.modules);
  PREPACK_TRY(schemes.CheckAllWereUsed());
  return plan;
}

namespace {

// The first that no layout takes, but an embedding only if there is nothing else: its reason says
// least about the model.
const ModulePlan* FirstRefused(const Plan& plan) {
  const ModulePlan* first = nullptr;
  for (const ModulePlan& module : plan.modules) {
    if (module.chosen != nullptr) continue;
    if (!module.request.embedding) return &module;
    if (first == nullptr) first = &module;
  }
  return first;
}

// A checkpoint has one quantization config, which cannot describe modules in another format.
Status CheckCheckpoint(const Plan& plan) {
  const ModulePlan* refused = FirstRefused(plan);
  if (refused == nullptr) return {};
  return Unsupported(fmt::format("module {}", refused->linear->module()),
                     fmt::format("{} cannot hold it: {}", plan.target->id, refused->WhyRejected()))
      .Hint(
          "--fallback dequantize stores such modules in bf16. `prepack plan` lists them all; "
          "other formats may have a place for them");
}

}  // namespace

Status CheckPlan(const Plan& plan) {
  if (plan.modules.empty()) {
    return Unsupported("", "the checkpoint has no quantized module: there is nothing to pack");
  }
  const bool nothing_packed = plan.PackedModules() == 0;
  if (plan.target->checkpoint) return CheckCheckpoint(plan);
  if (!nothing_packed && plan.fallback != Fallback::kError) return {};
  const ModulePlan* refused = FirstRefused(plan);
  if (refused == nullptr) return {};
  return Unsupported(fmt::format("module {}", refused->linear->module()),
                     fmt::format("no layout of {} takes {}: {}", plan.target->id,
                                 nothing_packed ? "any module of this checkpoint" : "it",
                                 refused->WhyRejected()))
      .Hint(nothing_packed ? "`prepack targets` lists what each layout takes; --fallback "
                             "dequantize turns modules that no layout takes into bf16"
                           : "--fallback keep leaves such modules as stored, --fallback "
                             "dequantize turns them into bf16");
}

std::vector<RuntimeChoice> RuntimeChoicesFor(const Plan& plan, const ModulePlan& module,
                                             const std::string& format) {
  PackRequest source = module.request;
  source.scheme = module.linear->scheme();
  return RuntimeChoices(plan.target->id, format, source);
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
