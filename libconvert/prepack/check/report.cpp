// The result of a check as JUnit XML and as a page.

#include "prepack/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/model/dequantized_linear.h"
#include "prepack/report/charts.h"
#include "prepack/report/junit_xml.h"
#include "prepack/report/page.h"
#include "prepack/report/table.h"

namespace prepack {
namespace {

std::string Line(const Finding& finding) {
  std::string line =
      fmt::format("{} [{}] {}: {}", LabelOf(finding), finding.id, finding.where, finding.message);
  if (finding.more != 0) line += fmt::format(" (and {} more like it)", finding.more);
  return line;
}

JUnitCase TestCase(std::string name, const std::vector<Finding>& findings, bool looked_at,
                   bool strict) {
  JUnitCase test;
  test.class_name = "prepack.check";
  test.name = std::move(name);
  for (const Finding& finding : findings) {
    if (!Fails(finding, strict)) {
      test.output.push_back(Line(finding));
      continue;
    }
    if (!test.failure) {
      test.failure = {.type = std::string(finding.id), .message = finding.message, .lines = {}};
    }
    test.failure->lines.push_back(Line(finding));
  }
  if (!test.failure && !looked_at) test.skipped = "the data was not read";
  return test;
}

}  // namespace

std::string CheckJUnit(const CheckReport& report, bool strict) {
  JUnitSuite suite{.name = "prepack check " + report.source, .cases = {}};
  for (const ModuleCheck& module : report.modules) {
    suite.cases.push_back(
        TestCase(std::string(module.module), module.findings, module.figures.has_value(), strict));
  }
  std::string whole = NameOfWhole("checkpoint", suite.cases);
  suite.cases.insert(suite.cases.begin(),
                     TestCase(std::move(whole), report.findings, true, strict));
  return JUnitXml({&suite, 1});
}

namespace {

constexpr size_t kShownWorst = 10;

Tone ToneOfVerdict(CheckVerdict verdict) {
  switch (verdict) {
    case CheckVerdict::kSound:
      return Tone::kGood;
    case CheckVerdict::kWarnings:
      return Tone::kUnsure;
    default:
      return Tone::kBad;
  }
}

std::string CheckHeadHtml(const CheckReport& report) {
  return fmt::format(
      "<h1>prepack check: {}</h1>\n{}",
      HtmlToned(ToneOfVerdict(report.verdict), CheckVerdictName(report.verdict)),
      HtmlFacts({{"Checkpoint", report.source},
                 {"Format", report.format.empty() ? "not recognised" : report.format},
                 {"Unquantized model", report.baseline},
                 {"Quantized modules", fmt::format("{}", report.modules.size())},
                 {"Tensors", fmt::format("{}, {} bytes", report.tensors, report.tensor_bytes)},
                 {"Data", report.headers_only ? "not read (--headers)" : "read"}}));
}

std::string FindingsHtml(const std::vector<Finding>& findings) {
  std::vector<HtmlRow> rows;
  const auto rank = [](const Finding& finding) { return -static_cast<int>(finding.severity); };
  for (const Finding* shown : TableRowsOf(findings, rank)) {
    const Finding& finding = *shown;
    std::string message = finding.message;
    if (finding.more != 0) message += fmt::format(" (and {} more like it)", finding.more);
    rows.push_back({{.text = finding.where},
                    {.text = std::string(LabelOf(finding)), .tone = ToneOf(finding)},
                    {.text = std::string(finding.id)},
                    {.text = message},
                    {.text = std::string(finding.hint)}});
  }
  return RowsLeftOutHtml(findings.size()) +
         SortableTable({{"where"}, {"severity"}, {"finding"}, {"what"}, {"what to do"}}, rows);
}

// A measure of a module, as text and as a number to sort and colour by.
struct CheckMeasure {
  std::string_view title;
  bool high_is_good;
  HtmlCell (*of)(const ModuleCheck& module);
};

HtmlCell Percent(double fraction) {
  return {.text = fmt::format("{:.2f} %", 100 * fraction), .order = fraction};
}

HtmlCell OfFigures(const ModuleCheck& module, HtmlCell (*of)(const CheckFigures&)) {
  return module.figures ? of(*module.figures) : HtmlCell{.text = "-"};
}

HtmlCell ScaleCell(float scale) {
  if (!std::isfinite(scale)) return {.text = "-"};
  return {.text = fmt::format("{:.3e}", scale), .order = scale};
}

constexpr std::array kCheckMeasures = {
    CheckMeasure{"weight SQNR dB", true,
                 [](const ModuleCheck& module) {
                   if (!module.sqnr_db) return HtmlCell{.text = "-"};
                   return HtmlCell{.text = fmt::format("{:.1f}", *module.sqnr_db),
                                   .order = *module.sqnr_db};
                 }},
    CheckMeasure{"at an end of the range", false,
                 [](const ModuleCheck& module) {
                   return OfFigures(module, [](const CheckFigures& figures) {
                     return Percent(figures.saturated_fraction);
                   });
                 }},
    CheckMeasure{"different codes", true,
                 [](const ModuleCheck& module) {
                   return OfFigures(module, [](const CheckFigures& figures) {
                     const uint32_t codes = figures.distinct_codes;
                     return HtmlCell{.text = fmt::format("{}", codes), .order = codes};
                   });
                 }},
    CheckMeasure{"commonest code", false,
                 [](const ModuleCheck& module) {
                   return OfFigures(module, [](const CheckFigures& figures) {
                     return Percent(figures.commonest_fraction);
                   });
                 }},
    CheckMeasure{"|mean| / rms", false,
                 [](const ModuleCheck& module) {
                   return OfFigures(module, [](const CheckFigures& figures) {
                     const double shift = figures.mean_shift;
                     return HtmlCell{.text = fmt::format("{:.4f}", shift), .order = shift};
                   });
                 }},
    CheckMeasure{"smallest scale", true,
                 [](const ModuleCheck& module) {
                   return OfFigures(module, [](const CheckFigures& figures) {
                     return ScaleCell(figures.min_scale);
                   });
                 }},
    CheckMeasure{"largest scale", false,
                 [](const ModuleCheck& module) {
                   return OfFigures(module, [](const CheckFigures& figures) {
                     return ScaleCell(figures.max_scale);
                   });
                 }},
};

std::string ModulesTable(const std::vector<const ModuleCheck*>& modules) {
  std::vector<HtmlColumn> columns = {{"module"}, {"scheme"}, {"N", true}, {"K", true}};
  for (const CheckMeasure& measure : kCheckMeasures) {
    columns.push_back({std::string(measure.title), true});
  }
  std::vector<HtmlRow> rows;
  for (const ModuleCheck* module : modules) {
    HtmlRow row = {{.text = std::string(module->module)},
                   {.text = DescribeScheme(module->scheme)},
                   {.text = fmt::format("{}", module->n), .order = static_cast<double>(module->n)},
                   {.text = fmt::format("{}", module->k), .order = static_cast<double>(module->k)}};
    for (const CheckMeasure& measure : kCheckMeasures) row.push_back(measure.of(*module));
    rows.push_back(std::move(row));
  }
  return SortableTable(columns, rows);
}

// By SQNR if there is a baseline, otherwise by how many codes were clamped.
std::optional<double> RankOf(const CheckReport& report, const ModuleCheck& module) {
  const CheckMeasure& measure = kCheckMeasures[report.baseline.empty() ? 1 : 0];
  const std::optional<double> value = measure.of(module).order;
  if (!value) return std::nullopt;
  return measure.high_is_good ? *value : -*value;
}

std::vector<const ModuleCheck*> WorstChecked(const CheckReport& report) {
  if (report.modules.size() <= kShownWorst) return {};  // the table of all is as short
  std::vector<std::pair<double, const ModuleCheck*>> ranked;
  for (const ModuleCheck& module : report.modules) {
    if (const auto rank = RankOf(report, module)) ranked.emplace_back(*rank, &module);
  }
  std::ranges::stable_sort(ranked, {}, [](const auto& entry) { return entry.first; });
  std::vector<const ModuleCheck*> worst;
  for (const auto& [rank, module] : ranked) {
    if (worst.size() < kShownWorst) worst.push_back(module);
  }
  return worst;
}

std::string ChartHtml(const CheckReport& report) {
  DepthChart sqnr = {.caption = "Weights: SQNR against the unquantized model",
                     .unit = "dB",
                     .points = {},
                     .bars = {}};
  DepthChart clamped = {
      .caption = "Codes at either end of their range", .unit = "%", .points = {}, .bars = {}};
  for (const ModuleCheck& module : report.modules) {
    if (module.sqnr_db) sqnr.points.push_back({std::string(module.module), *module.sqnr_db});
    if (!module.figures) continue;
    clamped.points.push_back(
        {std::string(module.module), 100 * module.figures->saturated_fraction});
  }
  return DepthChartSvg(sqnr) + DepthChartSvg(clamped);
}

std::string CheckHeatHtml(const CheckReport& report) {
  HeatMap map = {.caption =
                     "Every module by every measure, along the depth of the model; the "
                     "stronger the colour, the worse among the others",
                 .modules = {},
                 .rows = {}};
  for (const ModuleCheck& module : report.modules) map.modules.emplace_back(module.module);
  for (const CheckMeasure& measure : kCheckMeasures) {
    HeatRow row = {
        .measure = std::string(measure.title), .high_is_good = measure.high_is_good, .cells = {}};
    for (const ModuleCheck& module : report.modules) {
      const HtmlCell cell = measure.of(module);
      row.cells.push_back({cell.order, cell.text});
    }
    map.rows.push_back(std::move(row));
  }
  return HeatMapSvg(map);
}

std::string CodesHistogram(const SchemeHistograms& counted, std::string_view caption) {
  HistogramChart chart = {.caption = fmt::format("{}: codes", caption), .bins = {}};
  const std::array<float, 256>& values = CodeValues(counted.scheme.code);
  for (const uint8_t code : CodesOf(counted.scheme)) {
    chart.bins.push_back({fmt::format("{:g}", values[code]), counted.codes[code]});
  }
  return HistogramSvg(chart);
}

std::string ScalesHistogram(const SchemeHistograms& counted, std::string_view caption) {
  constexpr int kBias = 127;
  HistogramChart chart = {.caption = fmt::format("{}: scales, by power of two", caption),
                          .bins = {}};
  const auto used = [](uint64_t count) { return count != 0; };
  const auto counts = counted.scale_exponents.All();
  const auto first = std::ranges::find_if(counts, used);
  const auto last = std::find_if(counts.rbegin(), counts.rend(), used).base();
  for (auto count = first; count < last; ++count) {
    chart.bins.push_back({fmt::format("2^{}", count - counts.begin() - kBias), *count});
  }
  return HistogramSvg(chart);
}

// Modules of one scheme together.
std::string HistogramsHtml(const CheckReport& report) {
  std::string html;
  for (const auto& [name, counted] : report.histograms) {
    const std::string caption =
        fmt::format("{}, {} module{}", name, counted.modules, counted.modules == 1 ? "" : "s");
    html += CodesHistogram(counted, caption);
    html += ScalesHistogram(counted, caption);
  }
  return html.empty() ? html : fmt::format("<div class=\"panels\">\n{}</div>\n", html);
}

std::string CheckedModulesHtml(const CheckReport& report) {
  // Modules that could not be measured or have errors come first.
  constexpr double kFirst = -std::numeric_limits<double>::infinity();
  const auto rank = [&](const ModuleCheck& module) {
    return module.findings.empty() ? RankOf(report, module).value_or(kFirst) : kFirst;
  };
  return RowsLeftOutHtml(report.modules.size()) + ModulesTable(TableRowsOf(report.modules, rank));
}

}  // namespace

std::string CheckHtml(const CheckReport& report) {
  return HtmlPage(
      fmt::format("prepack check: {}: {}", report.source, CheckVerdictName(report.verdict)),
      CheckHeadHtml(report) + HtmlSection("Findings", FindingsHtml(report.AllFindings())) +
          HtmlSection("Along the depth of the model", ChartHtml(report) + CheckHeatHtml(report)) +
          HtmlSection("Codes and scales", HistogramsHtml(report)) +
          HtmlSection("Worst modules", ModulesTable(WorstChecked(report))) +
          HtmlSection("Modules", CheckedModulesHtml(report)));
}

}  // namespace prepack
