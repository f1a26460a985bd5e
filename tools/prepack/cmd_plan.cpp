// prepack plan: what convert would do, per module, from headers only.

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "findings.h"
#include "json_reports.h"
#include "plan_options.h"
#include "table.h"
#include "units.h"

namespace prepack::cli {
namespace {

struct PlanCommand {
  CommonOptions common;
  std::string source;
  PlanFlags flags;
};

// Why candidates were rejected; modules with the same reason share a line.
std::string RejectionsText(const Plan& plan) {
  std::map<std::pair<std::string_view, std::string>, std::vector<std::string_view>> modules;
  for (const ModulePlan& module : plan.modules) {
    for (const Candidate& candidate : module.candidates) {
      if (candidate.verdict.ok) continue;
      modules[{candidate.layout->id, candidate.verdict.reason}].push_back(module.linear->module());
    }
  }
  std::string text;
  for (const auto& [rejection, names] : modules) {
    text += fmt::format("not {}: {} ({}{})\n", rejection.first, rejection.second,
                        Printable(names.front()),
                        names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1));
  }
  return text;
}

std::string PlanText(const Plan& plan) {
  Table table({{"module"},
               {"N", Align::kRight},
               {"K", Align::kRight},
               {"scheme"},
               {"layout"},
               {"before", Align::kRight},
               {"after", Align::kRight}});
  for (const ModulePlan& module : plan.modules) {
    table.AddRow({Printable(module.linear->module()), fmt::format("{}", module.request.n),
                  fmt::format("{}", module.request.k), DescribeScheme(module.request.scheme),
                  module.chosen == nullptr ? "kept as stored" : std::string(module.chosen->id),
                  HumanBytes(module.linear->source_bytes()), HumanBytes(module.packed_bytes)});
  }
  std::string text = table.Render();
  text += RejectionsText(plan);
  text += fmt::format(
      "\n{} of {} quantized modules are packed for {}; activations {}; all tensors {} before, {} "
      "after\n",
      plan.PackedModules(), plan.modules.size(), plan.target->id,
      ActivationDTypeName(plan.activation_dtype), HumanBytes(plan.source_bytes),
      HumanBytes(plan.output_bytes));
  return text;
}

ExitCodeValue RunPlan(const PlanCommand& options) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(options.source);
  if (!checkpoint.ok()) return Fail(checkpoint.status());
  const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  if (!model.ok()) return Fail(model.status());
  const Result<Plan> plan = MakePlan(*checkpoint, *model, options.flags.ToOptions());
  if (!plan.ok()) return Fail(plan.status());
  if (options.common.json) {
    PrintJson(PlanJson(*plan, *model, options.source));
  } else if (!options.common.quiet) {
    Print(PlanText(*plan) + FindingsText(model->findings));
  }
  const Status status = CheckPlan(*plan, options.flags.ToFallback());
  return status.ok() ? kExitDone : Fail(status);
}

}  // namespace

void AddPlan(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<PlanCommand>();
  CLI::App* command = AddCommand(
      app, "plan", "Show what convert would do, and why, from headers only", options->common,
      "Examples:\n"
      "  prepack plan Llama-3-8B-W4A16 --target vllm-cpu\n"
      "  prepack plan Llama-3-8B-W4A16 -t zentorch --json | jq '.modules[] | "
      "select(.layout == null)'\n"
      "Exits with 5 when convert would refuse the checkpoint.");
  command->add_option("SRC", options->source, "Checkpoint folder")->required();
  options->flags.AddTo(*command);
  command->callback([options, &exit_code] { exit_code = RunPlan(*options); });
}

}  // namespace prepack::cli
