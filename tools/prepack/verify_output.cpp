#include "verify_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "json_reports.h"
#include "progress_line.h"
#include "table.h"
#include "units.h"

namespace prepack::cli {
namespace {

constexpr size_t kMaxProblems = 20;  // per level; --json has all of them

std::string DecibelText(const std::optional<double>& value) {
  if (!value) return "-";
  return std::isfinite(*value) ? fmt::format("{:.1f}", *value) : fmt::format("{}", *value);
}

std::string ExactText(const ModuleVerification& module) {
  if (!module.exact) return "-";
  return *module.exact ? "yes" : "NO";
}

std::string ModulesText(const VerifyReport& report) {
  Table table({{"module"},
               {"layout"},
               {"exact"},
               {"scale diff", Align::kRight},
               {"kernel dB", Align::kRight},
               {"end-to-end dB", Align::kRight},
               {"GEMM"}});
  for (const ModuleVerification& module : report.modules) {
    table.AddRow(
        {Printable(module.module), Printable(module.layout), ExactText(module),
         module.max_scale_difference ? fmt::format("{:.1e}", *module.max_scale_difference) : "-",
         module.gemm ? DecibelText(module.gemm->inputs.front().kernel.sqnr_db) : "-",
         module.gemm ? DecibelText(module.gemm->inputs.front().end_to_end.sqnr_db) : "-",
         module.gemm
             ? fmt::format("{}, x {}", module.gemm->implementation, module.gemm->activations)
             : "-"});
  }
  return table.Render();
}

// What has been looked at.
std::string_view Summary(Level level) {
  switch (level) {
    case Level::kIntegrity:
      return "sizes, hashes, headers and packing fingerprints";
    case Level::kExactness:
      return "codes, zero points, scales and all other tensors as in the source";
    case Level::kGemm:
      return "products of the packed weights";
    case Level::kQuality:
      return "against the unquantized model";
  }
  return "";
}

std::string LevelText(Level which, const LevelResult& level) {
  std::string text =
      fmt::format("{:<10} {:<8} {}\n", LevelName(which), LevelStateName(level.state),
                  level.state == LevelState::kNotRun ? level.reason : Summary(which));
  for (size_t i = 0; i < std::min(level.problems.size(), kMaxProblems); ++i) {
    text += fmt::format("  {}: {}\n", Printable(level.problems[i].where),
                        Printable(level.problems[i].message, 1000));
  }
  if (level.problems.size() > kMaxProblems) {
    text +=
        fmt::format("  … and {} more (--json lists all)\n", level.problems.size() - kMaxProblems);
  }
  return text;
}

std::string VerifyText(const VerifyReport& report) {
  std::string text = ModulesText(report) + "\n";
  for (const Level level : kLevels) {
    if (report.level(level).asked) text += LevelText(level, report.level(level));
  }
  return text;
}

}  // namespace

ExitCodeValue VerifyAndPrint(const VerifyOptions& options, const CommonOptions& common) {
  Progress progress;
  std::optional<ProgressLine> line;
  line.emplace(progress, !common.quiet);
  const Result<VerifyReport> report = Verify(options, progress);
  line.reset();
  if (!report.ok()) return Fail(report.status());
  if (common.json) {
    PrintJson(VerifyJson(*report));
  } else if (!common.quiet) {
    Print(VerifyText(*report));
  }
  switch (report->Verdict()) {
    case LevelState::kPassed:
      break;
    case LevelState::kFailed:
      if (common.quiet) Fail(CheckFailed(report->folder, "the verification failed"));
      return kExitCheckFailed;
    case LevelState::kNotRun:
      if (common.quiet) {
        Fail(Unavailable(report->folder, "not all of the verification could run")
                 .Hint("Run `prepack verify` without -q to see why"));
      }
      return kExitNotRun;
  }
  return kExitDone;
}

}  // namespace prepack::cli
