#include "verify_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "options.h"
#include "prepack/base/status.h"
#include "prepack/io/file.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/parts.h"
#include "prepack/verify/report/summary.h"
#include "prepack/verify/report/writers.h"
#include "table.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

constexpr size_t kMaxProblems = 20;  // per level; --json has all of them
constexpr size_t kMaxRows = 40;      // with more modules, only those that matter are shown
constexpr size_t kWorstRows = 10;

size_t LookedAt(const VerifyReport& report) {
  return static_cast<size_t>(
      std::ranges::count(report.modules, true, &ModuleVerification::looked_at));
}

// What becomes rows: all that was looked at, or of many, those with problems and those closest to
// their bar.
std::vector<const ModuleVerification*> Rows(const VerifyReport& report) {
  const bool fold = LookedAt(report) > kMaxRows;
  std::set<std::string_view> chosen;
  if (fold) {
    chosen = ModulesWithProblems(report);
    for (const ModuleVerification* module : WorstModules(report, kWorstRows)) {
      chosen.insert(module->module);
    }
  }
  std::vector<const ModuleVerification*> rows;
  for (const ModuleVerification& module : report.modules) {
    if (fold ? chosen.contains(module.module) : module.looked_at) rows.push_back(&module);
  }
  return rows;
}

std::string ModulesText(const VerifyReport& report) {
  const bool with_quality = HasQuality(report);
  std::vector<Table::Column> columns;
  for (ReportColumn& column : ModuleColumns(with_quality)) {
    columns.push_back({std::move(column.title), column.number ? Align::kRight : Align::kLeft});
  }
  Table table(std::move(columns));
  const std::vector<const ModuleVerification*> rows = Rows(report);
  for (const ModuleVerification* module : rows) {
    std::vector<std::string> cells = ModuleCells(*module, with_quality);
    for (std::string& cell : cells) cell = Printable(cell);
    table.AddRow(std::move(cells));
  }
  std::string text = table.empty() ? std::string() : table.Render();
  if (const size_t looked_at = LookedAt(report); looked_at > rows.size()) {
    text += fmt::format(
        "… and {} more modules (--json has all); above: those with problems, and those with the "
        "kernel closest to its bar\n",
        looked_at - rows.size());
  }
  return text.empty() ? text : text + "\n";
}

std::string ListText(std::string_view prefix, const std::vector<Problem>& problems) {
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i) {
    text += fmt::format("  {}{}\n", prefix, Printable(ProblemText(problems[i]), 1000));
  }
  if (problems.size() > kMaxProblems) {
    text += fmt::format("  {}… and {} more (--json lists all)\n", prefix,
                        problems.size() - kMaxProblems);
  }
  return text;
}

}  // namespace

std::string VerifyText(const VerifyReport& report) {
  std::string text = ModulesText(report);
  for (const ShownLevel& level : ShownLevels(report)) {
    const LevelState state = level.result->state;
    text += fmt::format("{:<10}  {}  {}\n", level.name,
                        Paint(ToneOf(state), fmt::format("{:<7}", LevelStateName(state))),
                        Printable(level.sentence, 1000));
    text += ListText("", Folded(level.result->problems)) +
            ListText("note: ", Folded(level.result->notes));
  }
  const std::string sample = SampleSentence(report);
  if (!sample.empty()) text += sample + "\n";
  return text + "\n" + Paint(ToneOf(report.Verdict()), VerdictSentence(report)) + "\n";
}

}  // namespace prepack::cli

namespace prepack::cli {
namespace {

Status CheckPaths(const VerifyOptions& options, const VerifyOutputs& outputs) {
  if (outputs.junit.empty() && outputs.html.empty() && outputs.markdown.empty() &&
      outputs.parts.report.empty()) {
    return {};
  }
  OutputPaths paths;
  paths.ProtectFolder(options.folder, "the packed folder");
  paths.ProtectFile(options.folder, "the GGUF file");
  std::optional<std::filesystem::path> source = options.source;
  if (!source) {
    // A folder that cannot be opened is an error of the verification.
    const Result<PackedFolder> folder = PackedFolder::Open(options.folder);
    if (folder.ok()) source = RecordedSource(*folder);
  }
  if (source) paths.ProtectFolder(*source, "the source");
  if (options.baseline) paths.ProtectFolder(*options.baseline, "the baseline");
  if (options.activations) {
    paths.ProtectFile(*options.activations, "--activations");
    if (std::filesystem::is_directory(*options.activations)) {
      paths.ProtectFolder(*options.activations, "--activations");
    }
  }
  if (!outputs.against.empty()) paths.ProtectFile(outputs.against, "--against");
  Status status;
  for (const auto& [option, path] : {std::pair("--junit", outputs.junit),
                                     {"--html", outputs.html},
                                     {"--markdown", outputs.markdown}}) {
    if (status.ok() && !path.empty()) status = paths.Add(option, path);
  }
  return status.ok() ? outputs.parts.AddPath(paths) : status;
}

Status WriteFiles(const VerifyReport& report, const VerifyOutputs& outputs) {
  Status status;
  if (!outputs.junit.empty()) status = WriteFileAtomically(outputs.junit, VerifyJUnit(report));
  if (status.ok() && !outputs.html.empty()) {
    status = WriteFileAtomically(outputs.html, VerifyHtml(report));
  }
  if (status.ok() && !outputs.markdown.empty()) {
    status = WriteFileAtomically(outputs.markdown, VerifyMarkdown(report));
  }
  return status;
}

// With -q, the one line that says why the exit code is not 0.
void PrintVerdict(const VerifyReport& report) {
  switch (report.Verdict()) {
    case LevelState::kPassed:
      break;
    case LevelState::kFailed:
      Fail(CheckFailed(report.folder, "the verification failed"));
      break;
    case LevelState::kNotRun:
      Fail(Unavailable(report.folder, "some of the verification could not run")
               .Hint("Run `prepack verify` without -q to see why"));
      break;
  }
}

ExitCodeValue ExitCodeOf(LevelState verdict) {
  switch (verdict) {
    case LevelState::kPassed:
      return kExitDone;
    case LevelState::kFailed:
      return kExitCheckFailed;
    case LevelState::kNotRun:
      return kExitNotRun;
  }
  return kExitNotRun;
}

Result<VerifyReport> VerifyOrMerge(const VerifyOptions& options, const PartFlags& parts,
                                   Progress& progress) {
  if (!parts.IsMerge()) return Verify(options, progress);
  PREPACK_TRY_ASSIGN(const std::vector<std::filesystem::path> reports, parts.Reports());
  return MergeVerification(options, reports, progress);
}

// The report, compared with the earlier one if there is one. That is read first: a mistake in its
// name must not cost the time of a verification.
Result<VerifyReport> MakeReport(const VerifyOptions& options, const VerifyOutputs& outputs,
                                const CommonOptions& common) {
  std::optional<VerifyReport> earlier;
  if (!outputs.against.empty()) {
    PREPACK_TRY_ASSIGN(VerifyReport read, ReadVerifyReport(outputs.against));
    earlier = std::move(read);
  }
  ProgressDisplay display(common);
  Result<VerifyReport> report = VerifyOrMerge(options, outputs.parts, display.progress());
  display.Stop();
  if (report.ok() && earlier) {
    report->against = outputs.against;
    CompareWithEarlier(*earlier, outputs.tolerance_db, *report);
  }
  return report;
}

}  // namespace

ExitCodeValue PrintVerifyReport(const VerifyReport& report, const VerifyOutputs& outputs,
                                const CommonOptions& common) {
  if (common.json) {
    PrintJson(VerifyReportJson(report));
  } else if (!common.quiet) {
    Print(VerifyText(report));
  }
  if (const Status written = WriteFiles(report, outputs); !written.ok()) return Fail(written);
  if (common.quiet) PrintVerdict(report);
  return ExitCodeOf(report.Verdict());
}

ExitCodeValue PrintVerdictOfConversion(const VerifyReport& report, CommonOptions common) {
  common.quiet = common.quiet || common.json;
  common.json = false;
  return PrintVerifyReport(report, {}, common);
}

ExitCodeValue VerifyAndPrint(const VerifyOptions& options, const VerifyOutputs& outputs,
                             const CommonOptions& common) {
  if (const Status paths = CheckPaths(options, outputs); !paths.ok()) return Fail(paths);
  const Result<VerifyReport> report = MakeReport(options, outputs, common);
  if (!report.ok()) return Fail(report.status());
  return PrintVerifyReport(*report, outputs, common);
}

ExitCodeValue VerifyPartAndPrint(const VerifyOptions& options, const PartFlags& parts,
                                 const CommonOptions& common) {
  VerifyOutputs outputs;
  outputs.parts = parts;
  if (const Status paths = CheckPaths(options, outputs); !paths.ok()) return Fail(paths);
  const Result<Part> part = ParsePart(parts.part);
  if (!part.ok()) return Fail(part.status());
  ProgressDisplay display(common);
  const Result<PartReport> report = VerifyPart(options, *part, display.progress());
  display.Stop();
  return FinishPart("verify", parts, *part, report, common);
}

}  // namespace prepack::cli
