#include "verify_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "table.h"
#include "terminal.h"
#include "verify/report_summary.h"

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
