#include "tune_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "json_reports.h"
#include "prepack/base/status.h"
#include "table.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

std::string DecibelCell(const std::optional<double>& decibel) {
  if (!decibel) return "-";
  return std::isinf(*decibel) ? std::string("exact") : fmt::format("{:.1f}", *decibel);
}

// How far the ends of the interval are from the median, in percent of it.
double SpreadPercent(const Timing& timing) {
  return 100 * std::max(timing.high - timing.seconds, timing.seconds - timing.low) / timing.seconds;
}

std::string RateCell(const TuneStep& step) {
  if (!step.timing) return "-";
  return fmt::format("{} ±{:.0f}%", RateText(step), SpreadPercent(*step.timing));
}

// Bytes of weights per second, at the smallest batch, and what part of the bandwidth that is.
std::string BandwidthCell(const TuneReport& report, double bytes, const TuneStep& step) {
  if (!step.timing) return "-";
  const double rate = bytes / step.timing->seconds;
  return fmt::format("{:.1f} ({:.0f}%)", rate / 1e9, 100 * rate / report.bandwidth);
}

bool IsChosen(const TuneReport& report, size_t kind, size_t candidate) {
  return report.choice && report.choice->total.candidates[kind] == candidate;
}

std::string HeadText(const TuneReport& report) {
  std::string text = fmt::format(
      "{}: {}, {} in {}\n{}, {} on CPUs {}; {:.1f} GB/s read from memory\n",
      Printable(report.source), Printable(report.format), Plural(report.modules(), "module"),
      Plural(report.kinds.size(), "kind"),
      report.cpu.empty() ? "this machine" : Printable(report.cpu), Plural(report.threads, "thread"),
      fmt::join(report.cpus, ", "), report.bandwidth / 1e9);
  for (const TuneRuntime& runtime : report.runtimes) {
    text += runtime.why_not.empty()
                ? fmt::format("{}: {}\n", runtime.target, Printable(runtime.name))
                : fmt::format("{}: not measured: {}\n", runtime.target,
                              Printable(runtime.why_not, 1000));
  }
  return text + "\n";
}

// With the choice, where that is a mixture.
std::vector<TuneTotal> ShownTotals(const TuneReport& report) {
  std::vector<TuneTotal> totals = report.totals;
  if (!report.choice) return totals;
  const TuneTotal& chosen = report.choice->total;
  const bool is_there = std::ranges::any_of(totals, [&](const TuneTotal& total) {
    return total.target == chosen.target && total.candidates == chosen.candidates;
  });
  if (!is_there) totals.push_back(chosen);
  return totals;
}

std::string TotalsText(const TuneReport& report) {
  std::vector<Table::Column> columns = {
      {"all linear layers"}, {"size", Align::kRight}, {"dB", Align::kRight}};
  for (const uint64_t rows : report.batches) {
    columns.push_back({fmt::format("tokens/s, batch {}", rows), Align::kRight});
  }
  columns.push_back({fmt::format("GB/s, batch {}", report.batches.front()), Align::kRight});
  columns.push_back({""});
  Table table(std::move(columns));
  for (const TuneTotal& total : ShownTotals(report)) {
    std::vector<std::string> cells = {fmt::format("{} {}", total.target, total.label),
                                      HumanBytes(total.bytes), DecibelCell(total.sqnr_db)};
    for (const TuneStep& step : total.steps) cells.push_back(RateCell(step));
    cells.push_back(BandwidthCell(report, total.read_bytes, total.steps.front()));
    const bool chosen = report.choice && report.choice->total.target == total.target &&
                        report.choice->total.candidates == total.candidates;
    cells.emplace_back(chosen ? Paint(Tone::kGood, "recommended") : "");
    table.AddRow(std::move(cells));
  }
  return table.empty() ? std::string() : table.Render() + "\n";
}

std::string ShapesCell(const TunedKind& kind) {
  std::vector<std::string> texts;
  for (const TunedShape& shape : kind.shapes) {
    texts.push_back(ShapeText(shape));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string KindsText(const TuneReport& report) {
  std::vector<Table::Column> columns = {
      {"kind of module"},      {"modules, N x K"},    {"layout"},
      {"size", Align::kRight}, {"dB", Align::kRight}, {"worst", Align::kRight}};
  for (const uint64_t rows : report.batches) {
    columns.push_back({fmt::format("batch {}", rows), Align::kRight});
  }
  columns.push_back({"kernel"});
  columns.push_back({""});
  Table table(std::move(columns));
  for (size_t i = 0; i < report.kinds.size(); ++i) {
    const TunedKind& kind = report.kinds[i];
    for (size_t j = 0; j < kind.candidates.size(); ++j) {
      const TuneCandidate& candidate = kind.candidates[j];
      std::vector<std::string> cells = {j == 0 ? Printable(kind.role) : "",
                                        j == 0 ? ShapesCell(kind) : "",
                                        LayoutsText(candidate),
                                        HumanBytes(candidate.bytes),
                                        DecibelCell(candidate.sqnr_db),
                                        DecibelCell(candidate.worst_db)};
      for (const TuneStep& step : candidate.steps) cells.push_back(SecondsText(step));
      cells.push_back(candidate.implementation.empty() ? "-" : candidate.implementation);
      cells.emplace_back(IsChosen(report, i, j) ? Paint(Tone::kGood, "chosen") : "");
      table.AddRow(std::move(cells));
    }
  }
  return table.Render();
}

// Modules or candidates that share a sentence share a line.
std::string SentencesText(std::string_view head,
                          const std::map<std::string, std::vector<std::string>>& sentences) {
  std::string text;
  for (const auto& [sentence, things] : sentences) {
    text += fmt::format("{}: {}: {}\n", head, Printable(fmt::format("{}", fmt::join(things, ", "))),
                        Printable(sentence, 1000));
  }
  return text;
}

void AddOnce(std::vector<std::string>& things, std::string thing) {
  if (std::ranges::count(things, thing) == 0) things.push_back(std::move(thing));
}

std::string ReasonsText(const TuneReport& report) {
  std::map<std::string, std::vector<std::string>> unmeasured;
  std::map<std::string, std::vector<std::string>> impossible;
  std::map<std::string, std::vector<std::string>> left_out;
  for (const TunedKind& kind : report.kinds) {
    for (const TuneCandidate& candidate : kind.candidates) {
      for (const TuneStep& step : candidate.steps) {
        if (step.timing) continue;
        AddOnce(unmeasured[step.why_not], LayoutsText(candidate));
      }
      if (!candidate.why_no_sqnr.empty()) {
        AddOnce(unmeasured[candidate.why_no_sqnr], "dB of " + LayoutsText(candidate));
      }
    }
    for (const TuneRejection& one : kind.rejections) {
      AddOnce(impossible[one.why], fmt::format("{} {}", one.target, one.scheme));
    }
  }
  for (const auto& [role, why] : report.left_out) AddOnce(left_out[why], role);
  return SentencesText("not measured", unmeasured) + SentencesText("not possible", impossible) +
         SentencesText("left out", left_out);
}

std::string ChoiceText(const TuneReport& report, const std::string& scheme_file) {
  if (!report.choice) {
    return fmt::format("\n{}: {}\n", Paint(Tone::kBad, "no recommendation"),
                       Printable(report.why_no_choice, 2000));
  }
  std::string text = fmt::format("\n{} for {}: {}{}\n", Paint(Tone::kGood, "recommended"),
                                 GoalName(report.goal), Printable(report.choice->reason, 2000),
                                 report.choice->certain ? "" : " (too close to be certain)");
  if (!scheme_file.empty()) {
    text +=
        fmt::format("  prepack convert {} -o packed --target {} --scheme @{}\n",
                    Printable(report.source), report.choice->total.target, Printable(scheme_file));
  }
  return text;
}

Json TimingJson(const std::optional<Timing>& timing) {
  if (!timing) return nullptr;
  return {{"seconds", timing->seconds},
          {"low", timing->low},
          {"high", timing->high},
          {"samples", timing->samples}};
}

Json StepsJson(const std::vector<TuneStep>& steps) {
  Json json = Json::array();
  for (const TuneStep& step : steps) {
    json.push_back({{"batch", step.rows},
                    {"time", TimingJson(step.timing)},
                    {"why_not", step.timing ? Json(nullptr) : Json(step.why_not)}});
  }
  return json;
}

Json TextOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json CandidateJson(const TuneCandidate& candidate, bool chosen) {
  return {{"target", candidate.target},
          {"scheme", candidate.scheme},
          {"as_stored", candidate.as_stored},
          {"layouts", candidate.layouts},
          {"implementation", TextOrNull(candidate.implementation)},
          {"is_reference", candidate.is_reference},
          {"bytes", candidate.bytes},
          {"sqnr_db", JsonNumber(candidate.sqnr_db)},
          {"exact", candidate.sqnr_db && std::isinf(*candidate.sqnr_db)},
          {"worst_module", TextOrNull(candidate.worst_module)},
          {"worst_sqnr_db", JsonNumber(candidate.worst_db)},
          {"why_no_sqnr", TextOrNull(candidate.why_no_sqnr)},
          {"steps", StepsJson(candidate.steps)},
          {"chosen", chosen}};
}

Json KindJson(const TuneReport& report, size_t index) {
  const TunedKind& kind = report.kinds[index];
  Json json = {{"role", kind.role},           {"pattern", kind.pattern},
               {"bits", kind.bits},           {"shapes", Json::array()},
               {"candidates", Json::array()}, {"not_possible", Json::array()}};
  for (const TunedShape& shape : kind.shapes) {
    json["shapes"].push_back({{"n", shape.n},
                              {"k", shape.k},
                              {"scheme", shape.scheme},
                              {"modules", shape.modules},
                              {"units", shape.units},
                              {"experts", shape.experts},
                              {"top_k", shape.top_k}});
  }
  for (size_t i = 0; i < kind.candidates.size(); ++i) {
    json["candidates"].push_back(CandidateJson(kind.candidates[i], IsChosen(report, index, i)));
  }
  for (const TuneRejection& one : kind.rejections) {
    json["not_possible"].push_back(
        {{"target", one.target}, {"scheme", one.scheme}, {"reason", one.why}});
  }
  return json;
}

Json TotalJson(const TuneTotal& total) {
  return {{"target", total.target},
          {"label", total.label},
          {"bytes", total.bytes},
          {"sqnr_db", JsonNumber(total.sqnr_db)},
          {"steps", StepsJson(total.steps)}};
}

Json ChoiceJson(const TuneReport& report) {
  if (!report.choice) return nullptr;
  Json schemes = Json::array();
  for (size_t i = 0; i < report.kinds.size(); ++i) {
    const TunedKind& kind = report.kinds[i];
    const TuneCandidate& chosen = kind.candidates[report.choice->total.candidates[i]];
    schemes.push_back(fmt::format("{}={}", kind.pattern, chosen.scheme));
  }
  return {{"total", TotalJson(report.choice->total)},
          {"schemes", std::move(schemes)},
          {"reason", report.choice->reason},
          {"certain", report.choice->certain}};
}

}  // namespace

std::string TuneText(const TuneReport& report, const std::string& scheme_file) {
  return HeadText(report) + TotalsText(report) + KindsText(report) + ReasonsText(report) +
         ChoiceText(report, scheme_file);
}

Json TuneJson(const TuneReport& report) {
  Json json = JsonDocument("prepack-tune");
  json["source"] = report.source;
  json["format"] = report.format;
  json["machine"] = {{"cpu", report.cpu},
                     {"threads", report.threads},
                     {"cpus", report.cpus},
                     {"read_bytes_per_second", report.bandwidth},
                     {"cold_bytes", report.cold_bytes}};
  json["batches"] = report.batches;
  json["activations"] = TextOrNull(report.activations);
  json["layers"] = report.layers;
  json["runtimes"] = Json::array();
  for (const TuneRuntime& runtime : report.runtimes) {
    json["runtimes"].push_back({{"target", runtime.target},
                                {"name", TextOrNull(runtime.name)},
                                {"why_not", TextOrNull(runtime.why_not)}});
  }
  json["kinds"] = Json::array();
  for (size_t i = 0; i < report.kinds.size(); ++i) json["kinds"].push_back(KindJson(report, i));
  json["left_out"] = Json::array();
  for (const auto& [role, why] : report.left_out) {
    json["left_out"].push_back({{"role", role}, {"reason", why}});
  }
  json["totals"] = Json::array();
  for (const TuneTotal& total : report.totals) json["totals"].push_back(TotalJson(total));
  json["goal"] = GoalName(report.goal);
  json["min_sqnr_db"] = JsonNumber(report.min_sqnr_db);
  json["choice"] = ChoiceJson(report);
  json["why_no_choice"] = TextOrNull(report.why_no_choice);
  json["seconds"] = report.seconds;
  return json;
}

}  // namespace prepack::cli
