// The page of `diff --html`.

#include "prepack/diff/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "prepack/report/charts.h"
#include "prepack/report/page.h"
#include "prepack/report/table.h"

namespace prepack {
namespace {

constexpr std::array kVerdicts = {DiffVerdict::kIdentical,  DiffVerdict::kEqual,
                                  DiffVerdict::kDifferent,  DiffVerdict::kShapeDiffers,
                                  DiffVerdict::kOnlyInA,    DiffVerdict::kOnlyInB,
                                  DiffVerdict::kNotCompared};

template <typename Items, typename VerdictOf>
std::string CountsText(const Items& items, VerdictOf verdict_of) {
  std::string text;
  for (const DiffVerdict verdict : kVerdicts) {
    const auto count = std::ranges::count(items, verdict, verdict_of);
    if (count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, DiffVerdictName(verdict));
  }
  return text.empty() ? "none" : text;
}

DiffVerdict VerdictOf(const TensorDiff& diff) {
  return diff.differences.verdict;
}

}  // namespace

std::string ModuleVerdicts(const DiffReport& report) {
  return CountsText(report.modules, &ModuleDiff::verdict);
}

std::string TensorVerdicts(const DiffReport& report) {
  return CountsText(report.tensors, VerdictOf);
}

std::string CheckpointText(const std::string& path, const std::string& format) {
  return fmt::format("{} ({})", path, format.empty() ? "not quantized" : format);
}

std::string SideText(const std::optional<DiffSide>& side) {
  if (!side) return "-";
  return fmt::format("{} [{}]", side->description,
                     fmt::join(side->shape.begin(), side->shape.end(), ", "));
}

std::string DifferenceText(double difference) {
  return difference == 0 ? "0" : fmt::format("{:.3g}", difference);
}

std::string SqnrText(const WeightDifferences& differences) {
  const std::optional<double> sqnr = differences.SqnrDb();
  return sqnr && std::isfinite(*sqnr) ? fmt::format("{:.1f}", *sqnr) : "-";
}

namespace {

constexpr size_t kShownWorst = 10;

std::string HeadHtml(const DiffReport& report) {
  return fmt::format(
      "<h1>prepack diff: {}</h1>\n{}",
      report.Same() ? HtmlToned(Tone::kGood, "the same") : HtmlToned(Tone::kBad, "different"),
      HtmlFacts({{"A", CheckpointText(report.a, report.format_a)},
                 {"B", CheckpointText(report.b, report.format_b)},
                 {"Quantized modules", ModuleVerdicts(report)},
                 {"Other tensors", TensorVerdicts(report)}}));
}

HtmlCell Number(double value) {
  return {.text = DifferenceText(value), .order = value};
}

HtmlCell Count(uint64_t count) {
  return {.text = fmt::format("{}", count), .order = static_cast<double>(count)};
}

HtmlCell VerdictCell(DiffVerdict verdict) {
  return {.text = std::string(DiffVerdictName(verdict)), .tone = ToneOf(verdict)};
}

HtmlCell SqnrCell(const ModuleDiff& diff) {
  const bool compared = diff.differences.elements != 0;
  return {.text = SqnrText(diff.differences),
          .order = compared ? diff.differences.SqnrDb() : std::nullopt};
}

std::string ModulesHtml(const std::vector<const ModuleDiff*>& modules) {
  std::vector<HtmlRow> rows;
  rows.reserve(modules.size());
  for (const ModuleDiff* diff : modules) {
    rows.push_back({{.text = diff->module},
                    {.text = SideText(diff->a)},
                    {.text = SideText(diff->b)},
                    VerdictCell(diff->verdict),
                    Count(diff->differences.unequal),
                    Number(diff->differences.max_absolute),
                    Number(diff->differences.max_relative),
                    SqnrCell(*diff)});
  }
  return SortableTable({{"module"},
                        {"A"},
                        {"B"},
                        {"verdict"},
                        {"differing", true},
                        {"max abs", true},
                        {"max rel", true},
                        {"SQNR dB", true}},
                       rows);
}

// By SQNR; modules that differ in another way come first, those that do not differ last.
double RankOf(const ModuleDiff& diff) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (IsSame(diff.verdict)) return kInfinite;
  if (diff.verdict != DiffVerdict::kDifferent) return -kInfinite;
  return diff.differences.SqnrDb().value_or(0);
}

std::string TensorsHtml(const DiffReport& report) {
  std::vector<HtmlRow> rows;
  const auto rank = [](const TensorDiff& diff) { return IsSame(diff.differences.verdict) ? 1 : 0; };
  for (const TensorDiff* diff : TableRowsOf(report.tensors, rank)) {
    rows.push_back({{.text = diff->tensor},
                    {.text = SideText(diff->a)},
                    {.text = SideText(diff->b)},
                    VerdictCell(diff->differences.verdict),
                    Count(diff->differences.elements),
                    Number(diff->differences.max_absolute)});
  }
  return RowsLeftOutHtml(report.tensors.size()) +
         SortableTable(
             {{"tensor"}, {"A"}, {"B"}, {"verdict"}, {"differing", true}, {"max abs", true}}, rows);
}

// Those that differ.
std::vector<const ModuleDiff*> WorstModules(const DiffReport& report) {
  if (report.modules.size() <= kShownWorst) return {};  // the table of all is as short
  std::vector<const ModuleDiff*> modules;
  for (const ModuleDiff& diff : report.modules) {
    if (!IsSame(diff.verdict)) modules.push_back(&diff);
  }
  std::ranges::stable_sort(modules, {}, [](const ModuleDiff* diff) { return RankOf(*diff); });
  if (modules.size() > kShownWorst) modules.resize(kShownWorst);
  return modules;
}

std::string ChartHtml(const DiffReport& report) {
  DepthChart chart = {
      .caption = "Weights: SQNR of B against A", .unit = "dB", .points = {}, .bars = {}};
  for (const ModuleDiff& diff : report.modules) {
    const std::optional<double> sqnr = SqnrCell(diff).order;
    if (sqnr) chart.points.push_back({diff.module, *sqnr});
  }
  return DepthChartSvg(chart);
}

std::string HeatHtml(const DiffReport& report) {
  HeatMap map = {.caption =
                     "Every module by every measure, along the depth of the model; the "
                     "stronger the colour, the more it differs",
                 .modules = {},
                 .rows = {{"SQNR dB", true, {}},
                          {"share that differs", false, {}},
                          {"max abs", false, {}},
                          {"max rel", false, {}}}};
  for (const ModuleDiff& diff : report.modules) {
    map.modules.push_back(diff.module);
    const WeightDifferences& differences = diff.differences;
    const bool compared = differences.elements != 0;
    const auto cell = [&](const HtmlCell& from) {
      return HeatCell{compared ? from.order : std::nullopt, from.text};
    };
    const double share = compared ? static_cast<double>(differences.unequal) /
                                        static_cast<double>(differences.elements)
                                  : 0;
    map.rows[0].cells.push_back(cell(SqnrCell(diff)));
    map.rows[1].cells.push_back(
        cell({.text = fmt::format("{:.2f} %", 100 * share), .order = share}));
    map.rows[2].cells.push_back(cell(Number(differences.max_absolute)));
    map.rows[3].cells.push_back(cell(Number(differences.max_relative)));
  }
  return HeatMapSvg(map);
}

}  // namespace

std::string DiffHtml(const DiffReport& report) {
  return HtmlPage(
      fmt::format("prepack diff: {} and {}", report.a, report.b),
      HeadHtml(report) +
          HtmlSection("Along the depth of the model", ChartHtml(report) + HeatHtml(report)) +
          HtmlSection("What differs most", ModulesHtml(WorstModules(report))) +
          HtmlSection("Modules", RowsLeftOutHtml(report.modules.size()) +
                                     ModulesHtml(TableRowsOf(report.modules, RankOf))) +
          HtmlSection("Other tensors", TensorsHtml(report)));
}

}  // namespace prepack
