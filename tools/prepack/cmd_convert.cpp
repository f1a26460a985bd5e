// prepack convert: a quantized checkpoint in, a packed folder out.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"
#include "gguf_commands.h"
#include "json_reports.h"
#include "options.h"
#include "prepack/convert/convert.h"
#include "prepack/layouts/table.h"
#include "prepack/verify/conversion_check.h"
#include "shell_carrier.h"
#include "table.h"
#include "terminal.h"
#include "verify_output.h"

namespace prepack::cli {
namespace {

struct ConvertCommand {
  CommonOptions common;
  std::string source;
  std::string output;
  PlanFlags flags;
  GgufFlags gguf;
  unsigned jobs = 0;
  uint64_t memory_limit = 0;
  std::string part = "1/1";
  bool trust_source = false;
  bool resume = false;
  bool no_flush = false;
  bool force = false;
  bool verify = false;
  std::string fetch;
  uint64_t ahead = 1;
  bool consume = false;
  std::string done;
};

// A line for each reason.
std::string ReasonLines(const std::map<std::string, std::string>& reasons, std::string_view what) {
  std::string text;
  for (const auto& [why, modules] : ModulesByReason(reasons)) {
    text += fmt::format("  {} {}: {}\n", modules, what, why);
  }
  return text;
}

std::string ConvertText(const ConvertReport& report) {
  const std::string output = report.output.string();
  if (report.was_done) return DoneAlreadyText(output);
  std::string text = report.part.IsWhole()
                         ? fmt::format("{}: packed {} of {} quantized modules for {}\n", output,
                                       report.packed_modules,
                                       report.packed_modules + report.kept.size(), report.target)
                         : fmt::format("{}: part {} with {} packed modules for {}\n", output,
                                       report.part.Text(), report.packed_modules, report.target);
  if (report.resumed_units != 0) {
    text += fmt::format("  {} modules and tensors were there from the interrupted run\n",
                        report.resumed_units);
  }
  for (const auto& [layout, modules] : report.layouts) {
    text += fmt::format("  {:>5} × {}\n", modules, layout);
  }
  if (report.fused_modules != 0) {
    text += fmt::format("  {:>5} of them made of several modules\n", report.fused_modules);
  }
  text += ApartText(report.apart);
  text += ReasonLines(report.kept, "kept as stored");
  const Target* target = FindTarget(report.target);
  const bool all_are = target != nullptr && target->HoldsNoCodes();
  if (!all_are) text += ReasonLines(report.dequantized, "dequantized");
  if (report.rounded_scales != 0) {
    text += fmt::format("  {} scale{} rounded to the dtype that the kernel reads\n",
                        report.rounded_scales, report.rounded_scales == 1 ? " was" : "s were");
  }
  text += fmt::format("  {} other tensors copied; {} in, {} out in {}\n", report.copied_tensors,
                      HumanBytes(report.source_bytes), HumanBytes(report.output_bytes),
                      Plural(report.shards, "file"));
  return text + FindingsText(report.findings);
}

// What the user may miss in the output.
void PrintNotCopied(const std::vector<std::string>& names) {
  constexpr size_t kMostShown = 5;
  if (names.empty()) return;
  std::string shown;
  for (const std::string& name : std::span(names).first(std::min(names.size(), kMostShown))) {
    shown += (shown.empty() ? "" : ", ") + Printable(name);
  }
  if (names.size() > kMostShown) shown += fmt::format(" and {} more", names.size() - kMostShown);
  PrintNote(fmt::format(
      "not copied: {}. Subfolders and weights in other formats stay with the source", shown));
}

Result<ConvertOptions> OptionsOf(const ConvertCommand& command) {
  PREPACK_TRY(command.gguf.CheckForOthers());
  ConvertOptions convert;
  convert.source = command.source;
  convert.output = command.output;
  PREPACK_TRY_ASSIGN(convert.plan, command.flags.ToOptions());
  PREPACK_TRY_ASSIGN(convert.gguf, command.gguf.ToSource());
  convert.gguf.dequantize = convert.plan.fallback == Fallback::kDequantize;
  convert.jobs = command.jobs;
  convert.memory_limit = command.memory_limit;
  convert.replace = command.force;
  convert.resume = command.resume;
  convert.flush = !command.no_flush;
  PREPACK_TRY_ASSIGN(convert.part, ParsePart(command.part));
  convert.trust_source = command.trust_source;
  if (command.verify && !convert.part.IsWhole()) {
    return Usage("--verify", "a part cannot be verified by itself")
        .Hint("Run `prepack verify` after `prepack merge`");
  }
  if (command.verify && command.consume && command.memory_limit != 0) {
    return Usage("--memory-limit", "with it the output is verified when its source is gone")
        .Hint("Leave out --consume, --verify or --memory-limit");
  }
  return convert;
}

void PrintConversion(const ConvertReport& report, const ConvertOptions& options,
                     const ConvertCommand& command, const VerifyReport* verified) {
  if (!command.common.quiet) PrintNotCopied(report.not_copied);
  if (command.common.json) {
    PrintJson(ConvertJson(report, command.source, verified));
  } else if (!command.common.quiet) {
    Print(ConvertText(report));
    PrintCpuHint(options.source, options.plan, command.common);
  }
}

// The carriers must outlive the conversion.
Status AddFlow(const ConvertCommand& command, ShellCarrier& fetch, ShellCarrier& done,
               FlowOptions& flow) {
  flow.ahead = command.ahead;
  flow.consume = command.consume;
  if (!command.fetch.empty()) {
    PREPACK_TRY(fetch.Check());
    flow.fetch = &fetch;
  }
  if (!command.done.empty()) {
    PREPACK_TRY(done.Check());
    flow.done = &done;
  }
  return {};
}

// A GGUF file is made by one machine.
ExitCodeValue RunGguf(const ConvertCommand& command) {
  const Status status = RejectForGguf({{"--part", command.part != "1/1"}});
  if (!status.ok()) return Fail(status);
  Result<gguf::PlanOptions> plan = command.gguf.ToOptions(command.source, command.flags);
  if (!plan.ok()) return Fail(plan.status());
  gguf::ConvertOptions options{.plan = *std::move(plan),
                               .output = command.output,
                               .shard_bytes = command.gguf.shard_size,
                               .jobs = command.jobs,
                               .memory_limit = command.memory_limit,
                               .replace = command.force,
                               .resume = command.resume,
                               .flush = !command.no_flush};
  ShellCarrier fetch("--fetch", command.fetch);
  ShellCarrier done("--done", command.done);
  const Status flow = AddFlow(command, fetch, done, options.flow);
  if (!flow.ok()) return Fail(flow);
  return RunConvertGguf(std::move(options), command.verify, command.common);
}

ExitCodeValue RunConvert(const ConvertCommand& command) {
  if (command.flags.target == kGgufTarget) return RunGguf(command);
  Result<ConvertOptions> options = OptionsOf(command);
  if (!options.ok()) return Fail(options.status());
  ShellCarrier fetch("--fetch", command.fetch);
  ShellCarrier done("--done", command.done);
  const Status flow = AddFlow(command, fetch, done, options->flow);
  if (!flow.ok()) return Fail(flow);
  VerifyOptions verify;
  verify.folder = command.output;
  verify.source = command.source;
  verify.gguf = options->gguf;
  verify.jobs = command.jobs;
  verify.memory_limit = command.memory_limit;

  if (command.verify) KeepFreedMemory();
  ProgressDisplay display(command.common);
  ConversionCheck check(verify, display.progress());
  // Both at once take more memory than one after the other.
  if (command.verify && command.memory_limit == 0) options->observer = &check;
  const Result<ConvertReport> report = Convert(*options, display.progress());
  if (!report.ok()) {
    display.Stop();
    return Fail(report.status());
  }
  if (!command.verify) {
    display.Stop();
    PrintConversion(*report, *options, command, nullptr);
    return kExitDone;
  }
  const Result<VerifyReport> verified = check.Finish();
  display.Stop();
  PrintConversion(*report, *options, command, verified.ok() ? &*verified : nullptr);
  if (!verified.ok()) return Fail(verified.status());
  return PrintVerdictOfConversion(*verified, command.common);
}

}  // namespace

void AddConvert(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App* command = AddCommand(
      app, "convert", "Pack a quantized checkpoint for a CPU runtime", options->common,
      {.examples = "  prepack convert Llama-3-8B-W4A16 -o packed/ --target vllm-cpu\n"
                   "  prepack convert model.gguf -o packed/ -t vllm-cpu --like Llama-3-8B\n"
                   "  prepack convert Llama-3-8B-W4A16 -o packed/ -t zentorch --verify --force\n"
                   "  prepack convert Llama-405B-W4A16 -o packed/ -t vllm-cpu --resume --part 3/16",
       .notes = "prepack never changes the source, unless --consume asks for it. The output "
                "appears whole or not at all."});
  command->add_option("SRC", options->source, kCheckpointArgument)->required();
  command->add_option("-o,--output", options->output, "Output folder; for gguf, the file")
      ->required()
      ->type_name("OUT");
  options->flags.AddTo(*command);
  options->gguf.AddTo(*command);
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  AddMemoryLimit(*command, options->memory_limit);
  command
      ->add_option("--part", options->part,
                   "Convert only part I of N, into the folder OUT.part-0000I-of-0000N; `prepack "
                   "merge` joins the parts")
      ->type_name("I/N");
  command->add_flag("--trust-source", options->trust_source,
                    "With --part: read only what the part is made from. Use it if the source "
                    "cannot change before all parts are made. Without it each part reads more of "
                    "the source, so that `prepack merge` can refuse parts of two models");
  command->add_flag("--resume", options->resume,
                    "Keep finished work if interrupted, and continue what an interrupted run of "
                    "the same conversion has left; does nothing if the output is complete");
  command->add_flag("--no-flush", options->no_flush,
                    "Like cp, do not wait until the weights are on the disk: faster, but a power "
                    "failure within the next minute can damage the output");
  CLI::Option* const fetch =
      command
          ->add_option("--fetch", options->fetch,
                       "Run COMMAND for each shard of the source that is not in SRC, such as 'curl "
                       "-fo {path} https://HOST/MODEL/{file}'. SRC needs the headers only "
                       "(prepack-remote headers --into SRC)")
          ->type_name("COMMAND");
  command
      ->add_option("--ahead", options->ahead,
                   "With --fetch: how many shards may be here beside the one that is packed")
      ->check(CLI::Range(uint64_t{0}, uint64_t{100'000}))
      ->needs(fetch)
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--consume", options->consume,
                    "REMOVE each shard of the source when all that was made of it is on the disk "
                    "(with --verify: and has been judged). Headers stay in its place. "
                    "Needs --resume");
  command
      ->add_option("--done", options->done,
                   "Run COMMAND for each file of the output when it is complete, and for "
                   "the manifest last, such as 'aws s3 cp {path} s3://BUCKET/OUT/{file}'")
      ->type_name("COMMAND");
  command->add_flag("--force", options->force, "Replace an existing packed folder");
  command->add_flag("--verify", options->verify,
                    "Verify the output against the source: every module as soon as it is written");
  AddProgressOptions(*command, options->common);
  command->callback([options, &exit_code] {
    exit_code =
        WithModels({&options->source, &options->gguf.like}, [&] { return RunConvert(*options); });
  });
}

}  // namespace prepack::cli
