// prepack convert: a quantized checkpoint in, a packed folder out.

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "command.h"
#include "convert/convert.h"
#include "findings.h"
#include "json_reports.h"
#include "plan_options.h"
#include "progress_line.h"
#include "units.h"
#include "verify_output.h"

namespace prepack::cli {
namespace {

struct ConvertCommand {
  CommonOptions common;
  std::string source;
  std::string output;
  PlanFlags flags;
  unsigned jobs = 0;
  bool force = false;
  bool verify = false;
};

std::string ConvertText(const ConvertReport& report, const ConvertCommand& options) {
  std::string text =
      fmt::format("{}: packed {} of {} quantized modules for {}\n", options.output,
                  report.packed_modules, report.packed_modules + report.kept.size(), report.target);
  for (const auto& [layout, modules] : report.layouts) {
    text += fmt::format("  {:>5} × {}\n", modules, layout);
  }
  for (const auto& [module, why] : report.kept) {
    text += fmt::format("  {} kept as stored: {}\n", Printable(module), why);
  }
  for (const auto& [module, why] : report.dequantized) {
    text += fmt::format("  {} dequantized: {}\n", Printable(module), why);
  }
  if (report.rounded_scales != 0) {
    text += fmt::format("  {} scale{} rounded to the dtype that the kernel reads\n",
                        report.rounded_scales, report.rounded_scales == 1 ? " was" : "s were");
  }
  text +=
      fmt::format("  {} other tensors copied; {} in, {} out in {} file{}\n", report.copied_tensors,
                  HumanBytes(report.source_bytes), HumanBytes(report.output_bytes), report.shards,
                  report.shards == 1 ? "" : "s");
  return text + FindingsText(report.findings);
}

ExitCodeValue RunConvert(const ConvertCommand& options) {
  ConvertOptions convert;
  convert.source = options.source;
  convert.output = options.output;
  Result<PlanOptions> plan = options.flags.ToOptions();
  if (!plan.ok()) return Fail(plan.status());
  convert.plan = *std::move(plan);
  convert.jobs = options.jobs;
  convert.replace = options.force;

  Progress progress;
  std::optional<ProgressLine> line;
  line.emplace(progress, !options.common.quiet);
  const Result<ConvertReport> report = Convert(convert, progress);
  line.reset();
  if (!report.ok()) return Fail(report.status());
  if (options.common.json) {
    PrintJson(ConvertJson(*report, options.source, options.output));
  } else if (!options.common.quiet) {
    Print(ConvertText(*report, options));
  }
  if (!options.verify) return kExitDone;
  VerifyOptions verify;
  verify.folder = options.output;
  verify.source = options.source;
  verify.jobs = options.jobs;
  // stdout holds one JSON document: that of convert. The verdict is the exit code.
  return VerifyAndPrint(verify, {},
                        {.json = false, .quiet = options.common.json || options.common.quiet});
}

}  // namespace

void AddConvert(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App* command =
      AddCommand(app, "convert", "Pack a quantized checkpoint for a CPU runtime", options->common,
                 "The source is never changed; the output appears whole or not at all.\n"
                 "Examples:\n"
                 "  prepack convert Llama-3-8B-W4A16 -o packed/ --target vllm-cpu\n"
                 "  prepack convert Llama-3-8B-W4A16 -o packed/ -t zentorch --verify --force");
  command->add_option("SRC", options->source, "Checkpoint folder")->required();
  command->add_option("-o,--output", options->output, "Folder to make")
      ->required()
      ->type_name("OUT");
  options->flags.AddTo(*command);
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  command->add_flag("--force", options->force, "Replace an existing packed folder");
  command->add_flag("--verify", options->verify, "Verify the result against the source");
  command->callback([options, &exit_code] { exit_code = RunConvert(*options); });
}

}  // namespace prepack::cli
