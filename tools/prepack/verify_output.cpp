#include "verify_output.h"

#include <filesystem>
#include <optional>
#include <string_view>

#include "io/atomic_file.h"
#include "output_paths.h"
#include "progress_display.h"
#include "verify/packed_folder.h"
#include "verify/report_html.h"
#include "verify/report_json.h"
#include "verify/report_junit.h"
#include "verify/report_markdown.h"
#include "verify/report_reader.h"
#include "verify_text.h"

namespace prepack::cli {
namespace {

Status CheckPaths(const VerifyOptions& options, const VerifyOutputs& outputs) {
  if (outputs.junit.empty() && outputs.html.empty() && outputs.markdown.empty()) return {};
  OutputPaths paths;
  paths.ProtectFolder(options.folder, "the packed folder");
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
  return status;
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
      Fail(Unavailable(report.folder, "not all of the verification could run")
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

// The report, compared with the earlier one if there is one. That is read first: a mistake in its
// name must not cost the time of a verification.
Result<VerifyReport> MakeReport(const VerifyOptions& options, const VerifyOutputs& outputs,
                                const CommonOptions& common) {
  std::optional<VerifyReport> earlier;
  if (!outputs.against.empty()) {
    Result<VerifyReport> read = ReadVerifyReport(outputs.against);
    if (!read.ok()) return read.status();
    earlier = *std::move(read);
  }
  ProgressDisplay display(common);
  Result<VerifyReport> report = Verify(options, display.progress());
  display.Stop();
  if (report.ok() && earlier) {
    report->against = outputs.against;
    CompareWithEarlier(*earlier, outputs.tolerance_db, *report);
  }
  return report;
}

}  // namespace

ExitCodeValue VerifyAndPrint(const VerifyOptions& options, const VerifyOutputs& outputs,
                             const CommonOptions& common) {
  if (const Status paths = CheckPaths(options, outputs); !paths.ok()) return Fail(paths);
  const Result<VerifyReport> report = MakeReport(options, outputs, common);
  if (!report.ok()) return Fail(report.status());
  if (common.json) {
    PrintJson(VerifyReportJson(*report));
  } else if (!common.quiet) {
    Print(VerifyText(*report));
  }
  if (const Status written = WriteFiles(*report, outputs); !written.ok()) return Fail(written);
  if (common.quiet) PrintVerdict(*report);
  return ExitCodeOf(report->Verdict());
}

}  // namespace prepack::cli
