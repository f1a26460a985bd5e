#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include "prepack/report/charts.h"
#include "prepack/report/page.h"
#include "prepack/report/table.h"
#include "prepack/verify/report/summary.h"
#include "prepack/verify/report/writers.h"

namespace prepack {
namespace {

constexpr size_t kShownWorst = 10;

HtmlCell StateCell(LevelState state) {
  return {.text = std::string(LevelStateName(state)), .tone = ToneOf(state)};
}

std::string HeadHtml(const VerifyReport& report) {
  return fmt::format("<h1>prepack verify: {}</h1>\n{}",
                     HtmlToned(ToneOf(report.Verdict()), VerdictSentence(report)),
                     HtmlFacts({{"Folder", report.folder},
                                {"Target", report.target},
                                {"Source", report.source},
                                {"Unquantized model", report.baseline},
                                {"Recorded activations", report.activations},
                                {"GEMM engine", report.engine},
                                {"Earlier report", report.against},
                                {"Sample", SampleSentence(report)}}));
}

std::string LevelsHtml(const std::vector<ShownLevel>& levels) {
  std::vector<HtmlRow> rows;
  rows.reserve(levels.size());
  for (const ShownLevel& level : levels) {
    rows.push_back({{.text = std::string(level.name)},
                    StateCell(level.result->state),
                    {.text = level.sentence}});
  }
  return PlainTable({{"level"}, {"state"}, {"what was checked, or why not"}}, rows);
}

std::string ProblemsHtml(const std::vector<ShownLevel>& levels,
                         std::vector<Problem> LevelResult::*problems) {
  std::vector<std::string> sentences;
  for (const ShownLevel& level : levels) {
    for (const Problem& problem : Folded(level.result->*problems)) {
      sentences.push_back(fmt::format("{}: {}", level.name, ProblemText(problem)));
    }
  }
  return HtmlList(sentences);
}

// The number in the last word of a cell.
std::optional<double> NumberAtEnd(std::string_view text) {
  const std::string_view word = text.substr(text.rfind(' ') + 1);
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return number;
}

HtmlRow ModuleRow(const ModuleVerification& module, const std::vector<ShownLevel>& levels,
                  const std::vector<ReportColumn>& columns, bool with_quality) {
  const std::vector<std::string> cells = ModuleCells(module, with_quality);
  HtmlRow row;
  for (size_t i = 0; i < cells.size(); ++i) {
    row.push_back(
        {.text = cells[i], .order = columns[i].number ? NumberAtEnd(cells[i]) : std::nullopt});
  }
  for (const ShownLevel& level : levels) {
    if (level.level) row.push_back(StateCell(module.state(*level.level)));
  }
  return row;
}

std::string ModulesHtml(const std::vector<const ModuleVerification*>& modules, bool with_quality,
                        const std::vector<ShownLevel>& levels) {
  const std::vector<ReportColumn> titles = ModuleColumns(with_quality);
  std::vector<HtmlColumn> columns;
  columns.reserve(titles.size() + levels.size());
  for (const ReportColumn& title : titles) columns.push_back({title.title, title.number});
  for (const ShownLevel& level : levels) {
    if (level.level) columns.push_back({std::string(level.name)});
  }
  std::vector<HtmlRow> rows;
  rows.reserve(modules.size());
  for (const ModuleVerification* module : modules) {
    rows.push_back(ModuleRow(*module, levels, titles, with_quality));
  }
  return SortableTable(columns, rows);
}

// Failed modules first, then those whose kernel figures are closest to the bars.
std::vector<const ModuleVerification*> ShownModules(const VerifyReport& report) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::set<std::string_view> problems = ModulesWithProblems(report);
  return TableRowsOf(report.modules, [&](const ModuleVerification& module) {
    return problems.contains(module.module) ? -kInfinite : KernelMargin(module).value_or(kInfinite);
  });
}

// Empty if there are few modules, because the table of all modules is then as short.
std::vector<const ModuleVerification*> Worst(const VerifyReport& report) {
  if (report.modules.size() <= kShownWorst) return {};
  return WorstModules(report, kShownWorst);
}

// A figure of the products along the depth of the model, with its bars.
struct GemmMeasure {
  std::string_view caption;
  Figure InputFigures::*figure;
};
constexpr std::array kGemmMeasures = {
    GemmMeasure{
        "End to end: SQNR of the products against x · Wᵀ of the source, Gaussian activations",
        &InputFigures::end_to_end},
    GemmMeasure{"Kernel: SQNR of the products against what the kernel should compute, the worst of "
                "its inputs",
                &InputFigures::kernel}};

std::optional<double> BarOf(const InputFigures& input, Figure InputFigures::*figure) {
  if (figure == &InputFigures::kernel) return input.kernel_bar_db;
  return input.end_to_end_bar_db;
}

const InputFigures* InputOf(const GemmFigures& gemm, Figure InputFigures::*figure) {
  return figure == &InputFigures::kernel ? LowestKernel(gemm) : Gaussian(gemm);
}

std::string GemmChart(const VerifyReport& report, const GemmMeasure& measure) {
  DepthChart chart = {
      .caption = std::string(measure.caption), .unit = "dB", .points = {}, .bars = {}};
  for (const ModuleVerification& module : report.modules) {
    const InputFigures* input = module.gemm ? InputOf(*module.gemm, measure.figure) : nullptr;
    if (input == nullptr) continue;
    chart.points.push_back({module.module, (input->*measure.figure).sqnr_db});
    if (const std::optional<double> bar = BarOf(*input, measure.figure)) chart.bars.push_back(*bar);
  }
  return DepthChartSvg(chart);
}

std::string QualityChart(const VerifyReport& report, std::string_view caption,
                         std::optional<double> QualityFigures::*figure) {
  DepthChart chart = {.caption = std::string(caption), .unit = "dB", .points = {}, .bars = {}};
  for (const ModuleVerification& module : report.modules) {
    if (!module.quality || !(*module.quality.*figure)) continue;
    chart.points.push_back({module.module, *(*module.quality.*figure)});
  }
  return DepthChartSvg(chart);
}

std::string DepthHtml(const VerifyReport& report) {
  std::string html;
  for (const GemmMeasure& measure : kGemmMeasures) html += GemmChart(report, measure);
  html += QualityChart(report, "Weights: SQNR against the unquantized model",
                       &QualityFigures::weight_sqnr_db);
  html += QualityChart(report, "Products: SQNR against those of the unquantized model",
                       &QualityFigures::output_sqnr_db);
  return html;
}

std::string HeatHtml(const VerifyReport& report) {
  const bool with_quality = HasQuality(report);
  const std::vector<ReportColumn> columns = ModuleColumns(with_quality);
  HeatMap map = {.caption =
                     "Every module by every measure, along the depth of the model; the "
                     "stronger the colour, the worse among the others",
                 .modules = {},
                 .rows = {}};
  for (const ReportColumn& column : columns) {
    map.rows.push_back(
        {.measure = column.title, .high_is_good = column.title != "scale diff", .cells = {}});
  }
  for (const ModuleVerification& module : report.modules) {
    map.modules.push_back(module.module);
    const std::vector<std::string> cells = ModuleCells(module, with_quality);
    for (size_t i = 0; i < cells.size(); ++i) {
      map.rows[i].cells.push_back(
          {columns[i].number ? NumberAtEnd(cells[i]) : std::nullopt, cells[i]});
    }
  }
  return HeatMapSvg(map);
}

}  // namespace

std::string VerifyHtml(const VerifyReport& report) {
  const std::vector<ShownLevel> levels = ShownLevels(report);
  const bool with_quality = HasQuality(report);
  return HtmlPage(
      fmt::format("prepack verify: {}: {}", report.folder, LevelStateName(report.Verdict())),
      HeadHtml(report) + HtmlSection("Levels", LevelsHtml(levels)) +
          HtmlSection("Problems", ProblemsHtml(levels, &LevelResult::problems)) +
          HtmlSection("Notes", ProblemsHtml(levels, &LevelResult::notes)) +
          HtmlSection("Along the depth of the model", DepthHtml(report) + HeatHtml(report)) +
          HtmlSection("Closest to the bar of their kernels",
                      ModulesHtml(Worst(report), with_quality, levels)) +
          HtmlSection("Modules", RowsLeftOutHtml(report.modules.size()) +
                                     ModulesHtml(ShownModules(report), with_quality, levels)));
}

}  // namespace prepack
