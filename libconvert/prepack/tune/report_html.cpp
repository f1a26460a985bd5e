// The page of `tune --html`.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/text.h"
#include "prepack/report/charts.h"
#include "prepack/report/page.h"
#include "prepack/report/scatter.h"
#include "prepack/report/table.h"
#include "prepack/tune/report.h"

namespace prepack {
namespace {

HtmlCell DecibelHtml(const std::optional<double>& decibel) {
  if (!decibel) return {"-"};
  return {std::isinf(*decibel) ? "exact" : fmt::format("{:.1f}", *decibel), *decibel};
}

HtmlCell SecondsHtml(const TuneStep& step) {
  return {SecondsText(step), step.timing ? std::optional(step.timing->seconds) : std::nullopt};
}

bool IsInChoice(const TuneReport& report, size_t kind, size_t candidate) {
  return report.choice && report.choice->total.candidates[kind] == candidate;
}

std::string TuneHeadHtml(const TuneReport& report) {
  std::string text = report.choice
                         ? HtmlToned(Tone::kGood, fmt::format("{} {}", report.choice->total.target,
                                                              report.choice->total.label))
                         : HtmlToned(Tone::kUnsure, "no recommendation");
  text = fmt::format("<h1>prepack tune: {}</h1>\n", text);
  std::vector<std::string> sentences = {report.choice ? report.choice->reason
                                                      : report.why_no_choice};
  for (const TuneRuntime& runtime : report.runtimes) {
    if (runtime.why_not.empty()) continue;
    sentences.push_back(fmt::format("{} was not measured: {}", runtime.target, runtime.why_not));
  }
  return text +
         HtmlFacts({{"checkpoint", fmt::format("{} ({})", report.source, report.format)},
                    {"goal", std::string(GoalName(report.goal))},
                    {"at least", report.min_sqnr_db ? fmt::format("{} dB", *report.min_sqnr_db)
                                                    : std::string()},
                    {"machine", fmt::format("{}, {}", report.cpu.empty() ? "CPU" : report.cpu,
                                            Plural(report.threads, "thread"))},
                    {"memory", fmt::format("{:.1f} GB/s read", report.bandwidth / 1e9)},
                    {"activations", report.activations}}) +
         HtmlList(sentences);
}

std::string TotalsHtml(const TuneReport& report) {
  std::vector<HtmlColumn> columns = {{"all linear layers"}, {"size", true}, {"dB", true}};
  for (const uint64_t rows : report.batches) {
    columns.push_back({fmt::format("tokens/s, batch {}", rows), true});
  }
  std::vector<HtmlRow> rows;
  for (const TuneTotal& total : report.totals) {
    HtmlRow row = {{fmt::format("{} {}", total.target, total.label)},
                   {HumanBytes(total.bytes), static_cast<double>(total.bytes)},
                   DecibelHtml(total.sqnr_db)};
    for (const TuneStep& step : total.steps) {
      row.push_back(step.timing ? HtmlCell{RateText(step), RowsPerSecond(step)} : HtmlCell{"-"});
    }
    rows.push_back(std::move(row));
  }
  return PlainTable(columns, rows);
}

// Every candidate: the time of one module against its dB.
std::string ScatterOfBatch(const TuneReport& report, uint64_t rows) {
  ScatterChart chart{.caption = fmt::format(
                         "batch {}: time of a module against its dB; chosen ones are large", rows),
                     .x_name = "seconds",
                     .y_unit = "dB",
                     .points = {}};
  for (size_t i = 0; i < report.kinds.size(); ++i) {
    const TunedKind& kind = report.kinds[i];
    for (size_t j = 0; j < kind.candidates.size(); ++j) {
      const TuneCandidate& candidate = kind.candidates[j];
      if (!candidate.IsMeasured(rows) || !candidate.sqnr_db) continue;
      const double seconds = candidate.StepOf(rows)->timing->seconds;
      chart.points.push_back({.name = fmt::format("{} {}", kind.role, candidate.scheme),
                              .series = LayoutsText(candidate),
                              .x = seconds / static_cast<double>(kind.modules()),
                              .y = *candidate.sqnr_db,
                              .marked = IsInChoice(report, i, j)});
    }
  }
  return ScatterSvg(chart);
}

std::string ScattersHtml(const TuneReport& report) {
  std::string html;
  for (const uint64_t rows : report.batches) html += ScatterOfBatch(report, rows);
  return html;
}

// Of what was chosen, the modules of the sample.
std::string DepthHtml(const TuneReport& report) {
  if (!report.choice) return "";
  DepthChart chart{.caption =
                       "dB of the recommendation along the depth of the model, of the "
                       "layers that were looked at",
                   .unit = "dB",
                   .points = {},
                   .bars = {}};
  for (size_t i = 0; i < report.kinds.size(); ++i) {
    const TunedKind& kind = report.kinds[i];
    const size_t chosen = report.choice->total.candidates[i];
    for (const SampledModule& module : kind.candidates[chosen].sample) {
      chart.points.push_back({.module = module.module, .value = module.sqnr_db});
    }
  }
  return DepthChartSvg(chart);
}

std::string KindsHtml(const TuneReport& report) {
  std::vector<HtmlColumn> columns = {{"kind of module"}, {"layout"},   {"scheme"},
                                     {"size", true},     {"dB", true}, {"worst", true},
                                     {"worst module"}};
  for (const uint64_t rows : report.batches)
    columns.push_back({fmt::format("batch {}", rows), true});
  columns.push_back({"kernel"});
  columns.push_back({""});
  std::vector<HtmlRow> rows;
  for (size_t i = 0; i < report.kinds.size(); ++i) {
    const TunedKind& kind = report.kinds[i];
    for (size_t j = 0; j < kind.candidates.size(); ++j) {
      const TuneCandidate& candidate = kind.candidates[j];
      HtmlRow row = {{kind.role},
                     {LayoutsText(candidate)},
                     {candidate.scheme},
                     {HumanBytes(candidate.bytes), static_cast<double>(candidate.bytes)},
                     DecibelHtml(candidate.sqnr_db),
                     DecibelHtml(candidate.worst_db),
                     {candidate.worst_module}};
      for (const TuneStep& step : candidate.steps) row.push_back(SecondsHtml(step));
      row.push_back({candidate.implementation});
      const bool chosen = IsInChoice(report, i, j);
      row.push_back({.text = chosen ? "chosen" : "", .tone = chosen ? Tone::kGood : Tone::kPlain});
      rows.push_back(std::move(row));
    }
  }
  return SortableTable(columns, rows);
}

}  // namespace

std::string TuneHtml(const TuneReport& report) {
  return HtmlPage(fmt::format("prepack tune: {}", report.source),
                  TuneHeadHtml(report) + HtmlSection("The model", TotalsHtml(report)) +
                      HtmlSection("Time and accuracy", ScattersHtml(report)) +
                      HtmlSection("Along the depth", DepthHtml(report)) +
                      HtmlSection("Kinds of modules", KindsHtml(report)));
}

}  // namespace prepack
