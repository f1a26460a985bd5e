// prepack diff: two checkpoints by meaning, whatever their formats.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "command.h"
#include "diff/diff.h"
#include "json_reports.h"
#include "progress_line.h"
#include "table.h"
#include "units.h"

namespace prepack::cli {
namespace {

struct DiffCommand {
  CommonOptions common;
  std::string a;
  std::string b;
  std::string module;
  unsigned jobs = 0;
};

constexpr std::array kVerdicts = {DiffVerdict::kIdentical, DiffVerdict::kEqual,
                                  DiffVerdict::kDifferent, DiffVerdict::kShapeDiffers,
                                  DiffVerdict::kOnlyInA,   DiffVerdict::kOnlyInB};

// "5 identical, 2 different".
template <typename Items, typename VerdictOf>
std::string CountsText(const Items& items, VerdictOf verdict_of) {
  std::string text;
  for (const DiffVerdict verdict : kVerdicts) {
    const auto count = std::ranges::count(items, verdict, verdict_of);
    if (count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, DiffVerdictName(verdict));
  }
  return text.empty() ? "none" : text;
}

DiffVerdict VerdictOf(const TensorDiff& diff) {
  return diff.differences.verdict;
}

std::string SideText(const std::optional<DiffSide>& side) {
  return side ? fmt::format("{} {}", side->description, ShapeText(side->shape)) : "-";
}

std::string NumberText(double value) {
  return value == 0 ? "0" : fmt::format("{:.3g}", value);
}

std::string SqnrText(const WeightDifferences& differences) {
  const std::optional<double> sqnr = differences.SqnrDb();
  return sqnr && std::isfinite(*sqnr) ? fmt::format("{:.1f}", *sqnr) : "-";
}

std::string ElementText(const ElementSide& side) {
  std::string text = fmt::format("{:g}", side.value);
  if (side.stored) {
    text += fmt::format(" = (code {} - zero point {}) x {:g}", side.stored->code,
                        side.stored->zero_point, side.stored->scale);
  }
  return text;
}

std::string WorstText(const ModuleDiff& diff) {
  std::string text = fmt::format("\n{}: the largest differences\n", Printable(diff.module));
  Table table({{"n", Align::kRight}, {"k", Align::kRight}, {"A"}, {"B"}});
  for (const WorstElement& element : diff.differences.worst) {
    table.AddRow({fmt::format("{}", element.n), fmt::format("{}", element.k),
                  ElementText(element.a), ElementText(element.b)});
  }
  return text + table.Render(2);
}

std::string ModulesText(const DiffReport& report) {
  Table table({{"module"},
               {"A"},
               {"B"},
               {"verdict"},
               {"differing", Align::kRight},
               {"max abs", Align::kRight},
               {"max rel", Align::kRight},
               {"SQNR dB", Align::kRight}});
  for (const ModuleDiff& diff : report.modules) {
    const WeightDifferences& differences = diff.differences;
    table.AddRow({Printable(diff.module), SideText(diff.a), SideText(diff.b),
                  std::string(DiffVerdictName(diff.verdict)),
                  fmt::format("{}", differences.unequal), NumberText(differences.max_absolute),
                  NumberText(differences.max_relative), SqnrText(differences)});
  }
  return table.Render();
}

std::string TensorsText(const DiffReport& report) {
  Table table({{"tensor"},
               {"A"},
               {"B"},
               {"verdict"},
               {"differing", Align::kRight},
               {"max abs", Align::kRight}});
  bool any = false;
  for (const TensorDiff& diff : report.tensors) {
    if (IsSame(diff.differences.verdict)) continue;
    any = true;
    table.AddRow({Printable(diff.tensor), SideText(diff.a), SideText(diff.b),
                  std::string(DiffVerdictName(diff.differences.verdict)),
                  fmt::format("{}", diff.differences.elements),
                  NumberText(diff.differences.max_absolute)});
  }
  return any ? "\n" + table.Render() : "";
}

std::string ReportText(const DiffReport& report) {
  const auto side = [](const std::string& path, const std::string& format) {
    return fmt::format("{} ({})", Printable(path), format.empty() ? "not quantized" : format);
  };
  std::string text = fmt::format("A: {}\nB: {}\n\n", side(report.a, report.format_a),
                                 side(report.b, report.format_b));
  if (!report.modules.empty()) text += ModulesText(report);
  for (const ModuleDiff& diff : report.modules) {
    if (diff.verdict == DiffVerdict::kDifferent) text += WorstText(diff);
  }
  return text + TensorsText(report) +
         fmt::format("\nquantized modules: {}\nother tensors: {}\n",
                     CountsText(report.modules, &ModuleDiff::verdict),
                     CountsText(report.tensors, VerdictOf));
}

ExitCodeValue RunDiff(const DiffCommand& options) {
  Progress progress;
  std::optional<ProgressLine> line;
  line.emplace(progress, !options.common.quiet);
  const Result<DiffReport> report = Diff(
      {.a = options.a, .b = options.b, .module = options.module, .jobs = options.jobs}, progress);
  line.reset();
  if (!report.ok()) return Fail(report.status());
  if (options.common.json) {
    PrintJson(DiffJson(*report));
  } else if (!options.common.quiet) {
    Print(ReportText(*report));
  }
  if (report->Same()) return kExitDone;
  if (options.common.quiet) Fail(CheckFailed(report->a, "differs from " + report->b));
  return kExitCheckFailed;
}

}  // namespace

void AddDiff(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<DiffCommand>();
  CLI::App* command = AddCommand(
      app, "diff", "Compare two checkpoints by what their weights mean", options->common,
      "Modules are identical (same steps, same scales), equal (within one rounding of the dtype\n"
      "of the scales) or different; other tensors are identical or different.\n"
      "Exit codes: 0 all identical or equal; 1 something differs or is on one side only.\n"
      "Examples:\n"
      "  prepack diff Llama-3-8B-AWQ Llama-3-8B-W4A16\n"
      "  prepack diff Llama-3-8B-W4A16 Llama-3-8B --module model.layers.0.mlp.down_proj --json");
  command->add_option("A", options->a, "Checkpoint folder")->required();
  command->add_option("B", options->b, "Checkpoint folder")->required();
  command->add_option("--module", options->module, "Compare one quantized module")
      ->type_name("NAME");
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  command->callback([options, &exit_code] { exit_code = RunDiff(*options); });
}

}  // namespace prepack::cli
