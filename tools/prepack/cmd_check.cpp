// prepack check: is a quantized checkpoint complete, sane and what its metadata says?

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "json_reports.h"
#include "options.h"
#include "part_options.h"
#include "prepack/check/check.h"
#include "prepack/check/parts.h"
#include "prepack/io/file.h"
#include "table.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

constexpr size_t kMaxShownPerKind = 10;  // --json has all of them

struct CheckCommand {
  CommonOptions common;
  std::string source;
  std::string baseline;
  std::string junit;
  std::string html;
  std::vector<std::string> accepted;
  PartFlags parts;
  bool headers = false;
  bool strict = false;
  unsigned jobs = 0;
  uint64_t memory_limit = 0;
};

std::string HeadText(const CheckReport& report) {
  std::string text = fmt::format("{}: {}", Printable(report.source),
                                 report.format.empty() ? "format not read" : report.format);
  text += fmt::format(", {}, {}, {}\n", Plural(report.modules.size(), "quantized module"),
                      Plural(report.tensors, "tensor"), HumanBytes(report.tensor_bytes));
  std::map<std::string, size_t> schemes;
  for (const ModuleCheck& module : report.modules) ++schemes[DescribeScheme(module.scheme)];
  for (const auto& [scheme, count] : schemes) {
    text += fmt::format("  {}: {}\n", scheme, Plural(count, "module"));
  }
  if (report.headers_only) text += "  headers only: the data was not read\n";
  return text;
}

// Each kind of finding, those that are accepted apart: its places, then what to do about it.
std::string ListText(const std::vector<Finding>& findings) {
  using Kind = std::pair<std::string_view, bool>;
  std::vector<Kind> kinds;  // in the order of the findings: errors first
  std::map<Kind, std::vector<const Finding*>> by_kind;
  for (const Finding& finding : findings) {
    std::vector<const Finding*>& same = by_kind[{finding.id, finding.accepted}];
    if (same.empty()) kinds.emplace_back(finding.id, finding.accepted);
    same.push_back(&finding);
  }
  std::string text;
  for (const Kind& kind : kinds) {
    const std::vector<const Finding*>& same = by_kind[kind];
    const Finding& first = *same.front();
    text += fmt::format("\n{} [{}]\n", Paint(ToneOf(first), LabelOf(first)), kind.first);
    for (size_t i = 0; i < same.size() && i < kMaxShownPerKind; ++i) {
      const Finding& finding = *same[i];
      text +=
          fmt::format("  {}: {}{}\n", Printable(finding.where), Printable(finding.message, 1000),
                      finding.more == 0 ? "" : fmt::format(" (and {} more like it)", finding.more));
    }
    if (same.size() > kMaxShownPerKind) {
      text += fmt::format("  … and {} more (--json lists all)\n", same.size() - kMaxShownPerKind);
    }
    if (!first.hint.empty() && !first.accepted) text += fmt::format("  -> {}\n", first.hint);
  }
  return text;
}

std::string DecibelText(const std::optional<double>& value) {
  if (!value) return "-";
  return std::isfinite(*value) ? fmt::format("{:.1f}", *value) : fmt::format("{}", *value);
}

std::string BaselineText(const CheckReport& report) {
  Table table({{"module"},
               {"N", Align::kRight},
               {"K", Align::kRight},
               {"scheme"},
               {"weight SQNR dB", Align::kRight}});
  for (const ModuleCheck& module : report.modules) {
    table.AddRow({Printable(module.module), fmt::format("{}", module.n),
                  fmt::format("{}", module.k), DescribeScheme(module.scheme),
                  DecibelText(module.sqnr_db)});
  }
  return fmt::format("\nagainst {}\n{}", Printable(report.baseline), table.Render(2));
}

// Of those that nobody has accepted.
size_t Count(const std::vector<Finding>& findings, Severity severity) {
  return static_cast<size_t>(std::ranges::count_if(findings, [&](const Finding& finding) {
    return finding.severity == severity && !finding.accepted;
  }));
}

// "sound", "2 warnings", "1 error, 2 warnings", "sound, 1 accepted finding".
std::string VerdictText(const std::vector<Finding>& findings) {
  const size_t errors = Count(findings, Severity::kError);
  const size_t warnings = Count(findings, Severity::kWarning);
  const auto accepted = static_cast<size_t>(std::ranges::count(findings, true, &Finding::accepted));
  std::vector<std::string> parts;
  if (errors != 0) parts.push_back(Plural(errors, "error"));
  if (warnings != 0) parts.push_back(Plural(warnings, "warning"));
  if (parts.empty()) parts.emplace_back("sound");
  if (accepted != 0) parts.push_back(Plural(accepted, "accepted finding"));
  const Tone sound = warnings == 0 ? Tone::kGood : Tone::kUnsure;
  return Paint(errors != 0 ? Tone::kBad : sound, fmt::format("{}", fmt::join(parts, ", ")));
}

void PrintReport(const CheckReport& report, const CheckCommand& options) {
  const std::vector<Finding> findings = report.AllFindings();
  if (options.common.json) {
    PrintJson(CheckJson(report, options.strict));
  } else if (!options.common.quiet) {
    Print(HeadText(report) + ListText(findings) +
          (report.baseline.empty() ? "" : BaselineText(report)) + "\n" + VerdictText(findings) +
          "\n");
  } else if (const int code = CheckExitCode(report.verdict, options.strict); code != 0) {
    for (const Finding& finding : findings) {
      if (!Fails(finding, options.strict)) continue;
      PrintFinding(finding, code);
    }
  }
}

Status CheckReportPaths(const CheckCommand& options) {
  OutputPaths paths;
  paths.ProtectFolder(options.source, "the checkpoint");
  if (!options.baseline.empty()) paths.ProtectFolder(options.baseline, "the baseline");
  Status status;
  if (!options.junit.empty()) status = paths.Add("--junit", options.junit);
  if (status.ok() && !options.html.empty()) status = paths.Add("--html", options.html);
  return status.ok() ? options.parts.AddPath(paths) : status;
}

Status WriteReports(const CheckReport& report, const CheckCommand& options) {
  Status status;
  if (!options.junit.empty()) {
    status = WriteFileAtomically(options.junit, CheckJUnit(report, options.strict));
  }
  if (status.ok() && !options.html.empty()) {
    status = WriteFileAtomically(options.html, CheckHtml(report));
  }
  return status;
}

ExitCodeValue RunCheckPart(const CheckCommand& options, const CheckOptions& check) {
  const Result<Part> part = ParsePart(options.parts.part);
  if (!part.ok()) return Fail(part.status());
  ProgressDisplay display(options.common);
  const Result<PartReport> report = CheckPart(check, *part, display.progress());
  display.Stop();
  return FinishPart("check", options.parts, *part, report, options.common);
}

Result<CheckReport> CheckOrMerge(const CheckCommand& options, const CheckOptions& check,
                                 Progress& progress) {
  if (!options.parts.IsMerge()) return Check(check, progress);
  PREPACK_TRY_ASSIGN(const std::vector<std::filesystem::path> reports, options.parts.Reports());
  return MergeCheck(check, reports, progress);
}

ExitCodeValue RunCheck(const CheckCommand& options) {
  if (const Status paths = CheckReportPaths(options); !paths.ok()) return Fail(paths);
  Result<AcceptedFindings> accepted =
      AcceptedFindings::Make(options.accepted, AcceptedBy::kCheck, "--accept");
  if (!accepted.ok()) return Fail(accepted.status());
  CheckOptions check{.source = options.source,
                     .baseline = {},
                     .headers_only = options.headers,
                     .jobs = options.jobs,
                     .memory_limit = options.memory_limit,
                     .accepted = *std::move(accepted)};
  if (!options.baseline.empty()) check.baseline = options.baseline;
  if (options.parts.IsPart()) return RunCheckPart(options, check);
  ProgressDisplay display(options.common);
  const Result<CheckReport>& report =
      KeepUntilExit(CheckOrMerge(options, check, display.progress()));
  display.Stop();
  if (!report.ok()) return Fail(report.status());
  if (const Status written = WriteReports(*report, options); !written.ok()) return Fail(written);
  PrintReport(*report, options);
  return CheckExitCode(report->verdict, options.strict);
}

}  // namespace

void AddCheck(CLI::App& app, ExitCodeValue& exit_code) {
  auto options = std::make_shared<CheckCommand>();
  CLI::App* command = AddCommand(
      app, "check", "Check that a quantized checkpoint is complete and sane", options->common,
      {.examples = "  prepack check Llama-3-8B-W4A16\n"
                   "  prepack check Llama-3-8B-W4A16 --headers\n"
                   "  prepack check Llama-3-8B-W4A16 --baseline Llama-3-8B --strict "
                   "--junit check.xml --html check.html\n"
                   "  prepack check Llama-405B-W4A16 --part 3/8 --report part-3.json\n"
                   "            reads an eighth of the data, on one of eight machines\n"
                   "  prepack check Llama-405B-W4A16 --merge part-*.json\n"
                   "            gives the verdict of all eight together",
       .notes = "Exit codes: 0 sound, perhaps with notes and warnings; 1 values are bad or, with\n"
                "--strict, there are warnings; 3 the checkpoint is malformed; 5 it is not\n"
                "supported. If several apply, 3 takes precedence over 5, and 5 over 1."});
  command->add_option("SRC", options->source, kCheckpointArgument)->required();
  CLI::Option* headers = command->add_flag(
      "--headers", options->headers, "Check headers and configuration only; takes milliseconds");
  command
      ->add_option("--baseline", options->baseline,
                   "The unquantized checkpoint: compare every tensor with it and report the SQNR "
                   "of every module")
      ->type_name("FLOAT")
      ->excludes(headers);
  command->add_option("--junit", options->junit, "Write the result as JUnit XML")
      ->type_name("FILE");
  command->add_option("--html", options->html, "Write the report as one self-contained page")
      ->type_name("FILE");
  command->add_flag("--strict", options->strict, "Treat warnings as failures");
  AddAccept(*command, options->accepted,
            "A finding that you know about, by its identifier: it is reported, but fails nothing. "
            "With =PATTERN, only in modules and tensors whose name matches the regular "
            "expression. May be repeated");
  command->add_option("-j,--jobs", options->jobs, "Threads (default: one per CPU)")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  AddMemoryLimit(*command, options->memory_limit);
  options->parts.AddTo(*command, {"--headers", "--junit", "--html"});
  AddProgressOptions(*command, options->common);
  command->callback([options, &exit_code] {
    exit_code =
        WithModels({&options->source, &options->baseline}, [&] { return RunCheck(*options); });
  });
}

}  // namespace prepack::cli
