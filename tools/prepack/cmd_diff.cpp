// prepack diff: two checkpoints by meaning, whatever their formats.

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "gguf_commands.h"
#include "json_reports.h"
#include "options.h"
#include "prepack/diff/diff.h"
#include "prepack/io/file.h"
#include "table.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

struct DiffCommand {
  CommonOptions common;
  std::string a;
  std::string b;
  std::string module;
  std::string html;
  bool headers = false;
  std::vector<std::string> accepted;
  GgufFlags gguf;
  unsigned jobs = 0;
  uint64_t memory_limit = 0;
};

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

std::string VerdictText(DiffVerdict verdict) {
  return Paint(ToneOf(verdict), DiffVerdictName(verdict));
}

std::string ModulesText(const DiffReport& report) {
  NamedTable table({{"module"},
                    {"A"},
                    {"B"},
                    {"verdict"},
                    {"differing", Align::kRight},
                    {"max abs", Align::kRight},
                    {"max rel", Align::kRight},
                    {"SQNR dB", Align::kRight}});
  for (const ModuleDiff& diff : report.modules) {
    const WeightDifferences& differences = diff.differences;
    table.AddRow(diff.module,
                 {SideText(diff.a), SideText(diff.b), VerdictText(diff.verdict),
                  fmt::format("{}", differences.unequal), DifferenceText(differences.max_absolute),
                  DifferenceText(differences.max_relative), SqnrText(differences)});
  }
  return table.Render();
}

std::string TensorsText(const DiffReport& report) {
  NamedTable table({{"tensor"},
                    {"A"},
                    {"B"},
                    {"verdict"},
                    {"differing", Align::kRight},
                    {"max abs", Align::kRight}});
  bool any = false;
  for (const TensorDiff& diff : report.tensors) {
    if (IsSame(diff.differences.verdict)) continue;
    any = true;
    table.AddRow(diff.tensor,
                 {SideText(diff.a), SideText(diff.b), VerdictText(diff.differences.verdict),
                  fmt::format("{}", diff.differences.elements),
                  DifferenceText(diff.differences.max_absolute)});
  }
  return any ? "\n" + table.Render() : "";
}

std::string ReportText(const DiffReport& report) {
  std::string text =
      fmt::format("A: {}\nB: {}\n\n", Printable(CheckpointText(report.a, report.format_a)),
                  Printable(CheckpointText(report.b, report.format_b)));
  if (!report.modules.empty()) text += ModulesText(report);
  size_t different = 0;
  for (const ModuleDiff& diff : report.modules) {
    if (diff.verdict != DiffVerdict::kDifferent) continue;
    if (++different <= NamedTable::kMostNamedRows) text += WorstText(diff);
  }
  if (different > NamedTable::kMostNamedRows) {
    text += fmt::format("\n… and {} more modules that differ (--json has all)\n",
                        different - NamedTable::kMostNamedRows);
  }
  return text + TensorsText(report) +
         fmt::format("\nquantized modules: {}\nother tensors: {}\n", ModuleVerdicts(report),
                     TensorVerdicts(report));
}

Status CheckHtmlPath(const DiffCommand& options) {
  if (options.html.empty()) return {};
  OutputPaths paths;
  paths.ProtectFolder(options.a, "A");
  paths.ProtectFolder(options.b, "B");
  return paths.Add("--html", options.html);
}

ExitCodeValue RunDiff(const DiffCommand& options) {
  if (const Status path = CheckHtmlPath(options); !path.ok()) return Fail(path);
  Result<AcceptedFindings> accepted =
      AcceptedFindings::Make(options.accepted, AcceptedBy::kConversion, "--accept");
  if (!accepted.ok()) return Fail(accepted.status());
  const Result<GgufSource> source = options.gguf.ToSource();
  if (!source.ok()) return Fail(source.status());
  ProgressDisplay display(options.common);
  const Result<DiffReport> report = Diff({.a = options.a,
                                          .b = options.b,
                                          .headers = options.headers,
                                          .module = options.module,
                                          .jobs = options.jobs,
                                          .memory_limit = options.memory_limit,
                                          .accepted = *std::move(accepted),
                                          .gguf = *source},
                                         display.progress());
  display.Stop();
  if (!report.ok()) return Fail(report.status());
  if (options.common.json) {
    PrintJson(DiffJson(*report));
  } else if (!options.common.quiet) {
    Print(ReportText(*report));
  }
  if (!options.html.empty()) {
    const Status written = WriteFileAtomically(options.html, DiffHtml(*report));
    if (!written.ok()) return Fail(written);
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
      {.examples = "  prepack diff Llama-3-8B-AWQ Llama-3-8B-W4A16\n"
                   "  prepack diff Llama-3-8B-W4A16 Llama-3-8B --json "
                   "--module model.layers.0.mlp.down_proj\n"
                   "  prepack diff Llama-3-8B-AWQ model.gguf\n"
                   "  prepack diff Llama-3-8B-W4A16 Llama-3-8B --html diff.html",
       .notes =
           "Modules are identical (same steps, same scales), equal (within one rounding of\n"
           "the dtype of the scales) or different; other tensors are identical or different.\n"
           "With --headers, weights are \"not compared\".\n"
           "Exit codes: 0 all identical or equal; 1 something differs or is on one side only."});
  command->add_option("A", options->a, kCheckpointArgument)->required();
  command->add_option("B", options->b, kCheckpointArgument)->required();
  command->add_flag("--headers", options->headers,
                    "Compare names, shapes and dtypes only, and read no weights");
  command->add_option("--module", options->module, "Compare one quantized module")
      ->type_name("NAME");
  command->add_option("--html", options->html, "Write the report as one self-contained page")
      ->type_name("FILE");
  AddAccept(*command, options->accepted, kAcceptToRead);
  options->gguf.AddSourceTo(*command);
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  AddMemoryLimit(*command, options->memory_limit);
  AddProgressOptions(*command, options->common);
  command->callback([options, &exit_code] {
    exit_code = WithModels({&options->a, &options->b, &options->gguf.like},
                           [&] { return RunDiff(*options); });
  });
}

}  // namespace prepack::cli
