#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "prepack/report/page.h"
#include "prepack/verify/report/summary.h"
#include "prepack/verify/report/writers.h"

namespace prepack {
namespace {

constexpr size_t kWorst = 10;
constexpr size_t kMaxProblems = 50;  // per level
constexpr size_t kMaxMessageBytes = 1000;
// Limits of the table of all modules and of each list of problems or notes. Even with every
// character escaped, the whole document stays below kMaxMarkdownBytes.
constexpr size_t kTableBytes = 450'000;
constexpr size_t kListBytes = 30'000;

std::string_view StateMark(LevelState state) {
  switch (state) {
    case LevelState::kPassed:
      return "✅ passed";
    case LevelState::kFailed:
      return "❌ failed";
    case LevelState::kNotRun:
      return "⚠️ not run";
  }
  return "";
}

std::string TableHead(const std::vector<ReportColumn>& columns) {
  std::string titles = "|";
  std::string rule = "|";
  for (const ReportColumn& column : columns) {
    titles += fmt::format(" {} |", column.title);
    rule += column.number ? " ---: |" : " --- |";
  }
  return titles + "\n" + rule + "\n";
}

std::string TableRow(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) row += fmt::format(" {} |", EscapeMarkdown(cell));
  return row + "\n";
}

std::string HeadText(const VerifyReport& report) {
  std::string text = fmt::format("## {} prepack verify {}\n\n", StateMark(report.Verdict()),
                                 EscapeMarkdown(report.folder));
  const std::string sample = SampleSentence(report);
  text += fmt::format("{}; modules: {}, for {}{}\n\n", VerdictSentence(report),
                      report.modules.size(), EscapeMarkdown(report.target),
                      sample.empty() ? "" : ", " + EscapeMarkdown(sample));
  return text;
}

std::string LevelsText(const std::vector<ShownLevel>& levels) {
  std::string text = TableHead({{"level"}, {"state"}, {"what was checked, or why not"}});
  for (const ShownLevel& level : levels) {
    text += fmt::format("| {} | {} | {} |\n", level.name, StateMark(level.result->state),
                        EscapeMarkdown(level.sentence, kMaxMessageBytes));
  }
  return text + "\n";
}

std::string ListText(std::string_view title, const std::vector<Problem>& problems) {
  if (problems.empty()) return "";
  std::string text = fmt::format("### {}\n\n", title);
  size_t shown = 0;
  for (const Problem& problem : problems) {
    if (shown == kMaxProblems || text.size() > kListBytes) break;
    text += fmt::format("- {}\n", EscapeMarkdown(ProblemText(problem), kMaxMessageBytes));
    ++shown;
  }
  if (shown < problems.size()) {
    text += fmt::format("- … and {} more: the JSON report has all\n", problems.size() - shown);
  }
  return text + "\n";
}

std::string WorstText(const VerifyReport& report, const std::vector<ReportColumn>& columns,
                      bool with_quality) {
  const std::vector<const ModuleVerification*> worst = WorstModules(report, kWorst);
  if (worst.empty()) return "";
  std::string text = "### Modules closest to their bar\n\n" + TableHead(columns);
  for (const ModuleVerification* module : worst) {
    text += TableRow(ModuleCells(*module, with_quality));
  }
  return text + "\n";
}

std::string AllText(const VerifyReport& report, const std::vector<ReportColumn>& columns,
                    bool with_quality) {
  std::string text = fmt::format("<details>\n<summary>All {} modules</summary>\n\n{}",
                                 report.modules.size(), TableHead(columns));
  size_t shown = 0;
  for (const ModuleVerification& module : report.modules) {
    if (text.size() > kTableBytes) break;
    text += TableRow(ModuleCells(module, with_quality));
    ++shown;
  }
  if (shown < report.modules.size()) {
    text +=
        fmt::format("\n… and {} more: the JSON report has all\n", report.modules.size() - shown);
  }
  return text + "\n</details>\n";
}

}  // namespace

std::string VerifyMarkdown(const VerifyReport& report) {
  const std::vector<ShownLevel> levels = ShownLevels(report);
  const bool with_quality = HasQuality(report);
  const std::vector<ReportColumn> columns = ModuleColumns(with_quality);
  std::string text = HeadText(report) + LevelsText(levels);
  for (const ShownLevel& level : levels) {
    text += ListText(fmt::format("Problems: {}", level.name), Folded(level.result->problems));
  }
  text += WorstText(report, columns, with_quality);
  for (const ShownLevel& level : levels) {
    text += ListText(fmt::format("Notes: {}", level.name), Folded(level.result->notes));
  }
  return text + AllText(report, columns, with_quality);
}

}  // namespace prepack
