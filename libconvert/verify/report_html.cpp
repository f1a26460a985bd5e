#include "verify/report_html.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "base/version.h"
#include "io/escape.h"
#include "verify/report_summary.h"

namespace prepack {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --text: #1f2328; --back: #fff; --line: #d1d9e0; --soft: #f6f8fa;
  --passed: #116329; --failed: #b3261e; --not-run: #7d4e00; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --line: #3d444d;
  --soft: #151b23; --passed: #3fb950; --failed: #ff7b72; --not-run: #d29922; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  margin: 2rem auto; max-width: 90rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left;
  vertical-align: top; }
th { background: var(--soft); } .number { text-align: right; white-space: nowrap; }
.name { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere; }
.passed { color: var(--passed); } .failed { color: var(--failed); font-weight: 600; }
.not-run { color: var(--not-run); }
dt { font-weight: 600; } dd { margin: 0 0 .4rem; overflow-wrap: anywhere; }
li { overflow-wrap: anywhere; }
)";

// A name without spaces.
std::string_view StateClass(LevelState state) {
  return state == LevelState::kNotRun ? "not-run" : LevelStateName(state);
}

std::string StateCell(LevelState state) {
  return fmt::format("<td class=\"{}\">{}</td>", StateClass(state), LevelStateName(state));
}

std::string HeadHtml(const VerifyReport& report) {
  std::string html = fmt::format("<h1>prepack verify: <span class=\"{}\">{}</span></h1>\n<dl>\n",
                                 StateClass(report.Verdict()), EscapeXml(VerdictSentence(report)));
  const auto line = [&html](std::string_view title, std::string_view text) {
    if (text.empty()) return;
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", title, EscapeXml(text));
  };
  line("Folder", report.folder);
  line("Target", report.target);
  line("Source", report.source);
  line("Unquantized model", report.baseline);
  line("Recorded activations", report.activations);
  line("GEMM engine", report.engine);
  line("Earlier report", report.against);
  line("Sample", SampleSentence(report));
  return html + "</dl>\n";
}

std::string LevelsHtml(const std::vector<ShownLevel>& levels) {
  std::string html =
      "<h2>Levels</h2>\n<div class=\"table\"><table>\n"
      "<tr><th>level</th><th>state</th><th>what was looked at, or why not</th></tr>\n";
  for (const ShownLevel& level : levels) {
    html += fmt::format("<tr><td>{}</td>{}<td>{}</td></tr>\n", level.name,
                        StateCell(level.result->state), EscapeXml(level.sentence));
  }
  return html + "</table></div>\n";
}

std::string ProblemsHtml(std::string_view title, const std::vector<ShownLevel>& levels,
                         std::vector<Problem> LevelResult::*problems) {
  std::string items;
  for (const ShownLevel& level : levels) {
    for (const Problem& problem : Folded(level.result->*problems)) {
      items += fmt::format("<li>{}: {}</li>\n", level.name, EscapeXml(ProblemText(problem)));
    }
  }
  if (items.empty()) return "";
  return fmt::format("<h2>{}</h2>\n<ul>\n{}</ul>\n", title, items);
}

std::string ModuleRow(const ModuleVerification& module, const std::vector<ShownLevel>& levels,
                      const std::vector<ReportColumn>& columns, bool with_quality) {
  const std::vector<std::string> cells = ModuleCells(module, with_quality);
  std::string html = "<tr>";
  for (size_t i = 0; i < cells.size(); ++i) {
    html += fmt::format("<td class=\"{}\">{}</td>", columns[i].number ? "number" : "name",
                        EscapeXml(cells[i]));
  }
  for (const ShownLevel& level : levels) {
    if (level.level) html += StateCell(module.state(*level.level));
  }
  return html + "</tr>\n";
}

std::string ModulesHtml(const VerifyReport& report, const std::vector<ShownLevel>& levels) {
  const bool with_quality = HasQuality(report);
  const std::vector<ReportColumn> columns = ModuleColumns(with_quality);
  std::string html = "<h2>Modules</h2>\n<div class=\"table\"><table>\n<tr>";
  for (const ReportColumn& column : columns) {
    html += fmt::format("<th{}>{}</th>", column.number ? " class=\"number\"" : "",
                        EscapeXml(column.title));
  }
  for (const ShownLevel& level : levels) {
    if (level.level) html += fmt::format("<th>{}</th>", level.name);
  }
  html += "</tr>\n";
  for (const ModuleVerification& module : report.modules) {
    html += ModuleRow(module, levels, columns, with_quality);
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string VerifyHtml(const VerifyReport& report) {
  const std::vector<ShownLevel> levels = ShownLevels(report);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>prepack verify: {}: {}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "{}{}{}{}{}<p>prepack {}</p>\n</body>\n</html>\n",
      EscapeXml(report.folder), LevelStateName(report.Verdict()), kStyle, HeadHtml(report),
      LevelsHtml(levels), ProblemsHtml("Problems", levels, &LevelResult::problems),
      ProblemsHtml("Notes", levels, &LevelResult::notes), ModulesHtml(report, levels), kVersion);
}

}  // namespace prepack
