// prepack plan: what convert would do, per module, from headers only.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "gguf_commands.h"
#include "json_reports.h"
#include "options.h"
#include "prepack/base/parallel.h"
#include "table.h"

namespace prepack::cli {
namespace {

struct PlanCommand {
  CommonOptions common;
  std::string source;
  PlanFlags flags;
  GgufFlags gguf;
};

// Modules that are alike: the first of them, and how many there are.
struct Alike {
  const ModulePlan* first = nullptr;
  size_t count = 0;
};

// In the order of the first ones.
std::vector<Alike> GroupAlike(const Plan& plan) {
  std::vector<Alike> groups;
  std::map<const PackRequest*, size_t> places;
  for (const ModulePlan& module : plan.modules) {
    const auto [place, is_new] = places.try_emplace(&module.request, groups.size());
    if (is_new) groups.push_back({&module, 0});
    ++groups[place->second].count;
  }
  return groups;
}

// Modules that share a sentence share a line: how many there are, and the first of them.
class Sentences {
 public:
  void Add(std::string sentence, const Alike& modules) {
    auto [it, is_new] = modules_.try_emplace(std::move(sentence), modules);
    if (!is_new) it->second.count += modules.count;
  }
  std::string Text() const {
    std::string text;
    for (const auto& [sentence, modules] : modules_) {
      text += fmt::format("{} ({}{})\n", sentence, Printable(modules.first->linear->module()),
                          modules.count == 1 ? "" : fmt::format(" and {} more", modules.count - 1));
    }
    return text;
  }

 private:
  std::map<std::string, Alike> modules_;
};

// What the user can try with modules that no layout takes. Reasons name the options that matter.
std::string OptionsThatMatter(const ModulePlan& module) {
  std::string options;
  for (const std::string_view option : {"--dtype", "--scheme"}) {
    const bool matters = std::ranges::any_of(module.candidates, [&](const Candidate& candidate) {
      return candidate.verdict.reason.find(option) != std::string::npos;
    });
    if (matters) options += fmt::format("{}, ", option);
  }
  return options + "--fallback dequantize";
}

// "not A, B: the reason that both give". If a layout takes the module, those for other weights say
// nothing new.
void AddRejections(const Alike& group, Sentences& rejections) {
  for (const Rejection& rejection : group.first->Rejections()) {
    if (group.first->chosen != nullptr && rejection.verdict->other_weights) continue;
    rejections.Add(
        fmt::format("not {}: {}", fmt::join(rejection.layouts, ", "), rejection.verdict->reason),
        group);
  }
}

// First what the user can do about modules that no layout takes, then why candidates were rejected,
// then where the kernels compute something else than is stored.
std::string ReasonsText(const std::vector<Alike>& groups) {
  Sentences kept;
  Sentences rejections;
  Sentences notes;
  for (const Alike& group : groups) {
    const ModulePlan& module = *group.first;
    if (module.chosen == nullptr) {
      kept.Add("kept as stored; options that can change this: " + OptionsThatMatter(module), group);
    }
    AddRejections(group, rejections);
    if (!module.note.empty()) notes.Add("note: " + module.note, group);
  }
  return kept.Text() + rejections.Text() + notes.Text();
}

// What the runtime itself would run, CPU by CPU; modules with the same answer share a table.
std::string RuntimeText(const Plan& plan, const std::vector<Alike>& groups,
                        const std::string& format) {
  std::map<std::string, size_t> tables;
  for (const Alike& group : groups) {
    const ModulePlan& module = *group.first;
    Table table({{"CPU"}, {"kernel"}, {"remark"}});
    for (const RuntimeChoice& choice : RuntimeChoicesFor(plan, module, format)) {
      table.AddRow(
          {std::string(choice.cpu), std::string(choice.kernel), std::string(choice.remark)});
    }
    if (table.empty()) continue;
    tables[fmt::format("for {}\n{}", DescribeScheme(module.linear->scheme()), table.Render())] +=
        group.count;
  }
  std::string text;
  for (const auto& [table, count] : tables) {
    text += fmt::format("\nvLLM 0.32 itself would run, {}, {}", Plural(count, "module"), table);
  }
  return text;
}

// What the chosen layouts ask of the CPU that runs them; the bytes themselves need nothing.
std::string CpuText(const Plan& plan) {
  std::map<std::string_view, std::string_view> needs;
  for (const ModulePlan& module : plan.modules) {
    if (module.chosen != nullptr) needs[module.chosen->id] = module.chosen->isa;
  }
  std::string text;
  for (const auto& [layout, isa] : needs) {
    text += fmt::format("{} runs on: {}\n", layout, isa);
  }
  return text;
}

std::string PlanText(const Plan& plan, const std::string& format) {
  NamedTable table({{"module"},
                    {"N", Align::kRight},
                    {"K", Align::kRight},
                    {"scheme"},
                    {"layout"},
                    {"before", Align::kRight},
                    {"after", Align::kRight}});
  for (const ModulePlan& module : plan.modules) {
    table.AddRow(std::string(module.linear->module()),
                 {fmt::format("{}", module.request.n), fmt::format("{}", module.request.k),
                  DescribeScheme(module.linear->scheme()),
                  module.chosen == nullptr ? "kept as stored" : std::string(module.chosen->id),
                  HumanBytes(module.source_bytes), HumanBytes(module.packed_bytes)});
  }
  const std::vector<Alike> groups = GroupAlike(plan);
  std::string text = table.Render();
  text += ReasonsText(groups);
  text += ApartText(plan.apart);
  text += CpuText(plan);
  text += RuntimeText(plan, groups, format);
  const unsigned threads = ThreadCount(0);
  text += fmt::format(
      "\n{} of {} quantized modules are packed for {}; activations {}; all tensors {} before, {} "
      "after; converting needs {} of disk and at most {} of memory on {}\n",
      plan.PackedModules(), plan.modules.size(), plan.target->id,
      ActivationDTypeName(plan.activation_dtype), HumanBytes(plan.source_bytes),
      HumanBytes(plan.output_bytes), HumanBytes(plan.output_bytes),
      HumanBytes(plan.PeakMemory(threads)), Plural(threads, "thread"));
  return text;
}

// What the files of schemes say: the figures that `tune` chose by.
std::string NotesText(const std::vector<SchemeNotes>& notes) {
  std::string text;
  for (const SchemeNotes& file : notes) {
    if (!file.lines.empty()) text += fmt::format("\n{} says:\n", Printable(file.file));
    for (const std::string& line : file.lines) {
      text += fmt::format("  {}\n", Printable(line, 1000));
    }
  }
  return text;
}

ExitCodeValue RunPlan(const PlanCommand& options) {
  if (options.flags.target == kGgufTarget) {
    const Result<gguf::PlanOptions> plan = options.gguf.ToOptions(options.source, options.flags);
    return plan.ok() ? RunPlanGguf(*plan, options.common) : Fail(plan.status());
  }
  const Status flags = options.gguf.CheckForOthers();
  if (!flags.ok()) return Fail(flags);
  const Result<PlanOptions> plan_options = options.flags.ToOptions();
  if (!plan_options.ok()) return Fail(plan_options.status());
  Result<GgufSource> gguf = options.gguf.ToSource();
  if (!gguf.ok()) return Fail(gguf.status());
  gguf->dequantize = plan_options->fallback == Fallback::kDequantize;
  const Result<Checkpoint>& checkpoint = KeepUntilExit(OpenSource(options.source, *gguf));
  if (!checkpoint.ok()) return Fail(checkpoint.status());
  const Result<std::vector<SchemeNotes>> notes = options.flags.Notes();
  if (!notes.ok()) return Fail(notes.status());
  const Result<QuantizedModel>& model = KeepUntilExit(ReadModelToPlan(*checkpoint, *plan_options));
  if (!model.ok()) return Fail(model.status());
  const Result<Plan>& plan = KeepUntilExit(MakePlan(*checkpoint, *model, *plan_options));
  if (!plan.ok()) return Fail(plan.status());
  if (options.common.json) {
    JsonWriter json(PrintJsonText);
    WritePlanJson(*plan, *model, options.source, json);
    FinishJson(json);
  } else if (!options.common.quiet) {
    Print(PlanText(*plan, model->format) + FindingsText(model->findings) + NotesText(*notes));
    PrintCpuHint(*checkpoint, *model, *plan_options, options.common);
  }
  const Status status = CheckPlan(*plan);
  return status.ok() ? kExitDone : Fail(status);
}

}  // namespace

void AddPlan(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = AddCommand(
      app, "plan", "Show what convert would do and why, from headers only", options->common,
      {.examples = "  prepack plan Llama-3-8B-W4A16 --target vllm-cpu\n"
                   "  prepack plan Llama-3-8B-W4A16 -t vllm-cpu --scheme mlp=w4a8\n"
                   "  prepack plan Llama-3-8B-W4A16 -t zentorch --json | jq '.modules[] | "
                   "select(.layout == null)'",
       .notes = "Ends with 5 if convert would refuse the checkpoint."});
  command->add_option("SRC", options->source, kCheckpointArgument)->required();
  options->flags.AddTo(*command);
  options->gguf.AddTo(*command);
  command->callback([options, &exit_code] {
    exit_code =
        WithModels({&options->source, &options->gguf.like}, [&] { return RunPlan(*options); });
  });
}

}  // namespace prepack::cli
