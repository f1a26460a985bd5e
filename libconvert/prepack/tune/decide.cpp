// From figures of kinds to figures of the model, and to a choice.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/text.h"
#include "prepack/tune/choose.h"
#include "prepack/tune/report.h"

namespace prepack {
namespace {

// At which batch the goal is judged.
uint64_t RowsOfGoal(const TuneReport& report) {
  return report.goal == TuneGoal::kThroughput ? report.batches.back() : report.batches.front();
}

TuneStep SumOfStep(const TuneReport& report, const std::vector<size_t>& candidates, uint64_t rows) {
  TuneStep sum{.rows = rows, .timing = Timing{.samples = SIZE_MAX}, .why_not = {}};
  for (size_t i = 0; i < candidates.size(); ++i) {
    const TuneCandidate& candidate = report.kinds[i].candidates[candidates[i]];
    const TuneStep* step = candidate.StepOf(rows);
    if (step == nullptr || !step->timing) {
      sum.timing.reset();
      sum.why_not = step == nullptr ? std::string("not measured") : step->why_not;
      return sum;
    }
    *sum.timing = *sum.timing + *step->timing;
  }
  return sum;
}

// The mean over all modules of noise over signal: as if the noise of layers added up.
std::optional<double> MeanDecibel(const TuneReport& report, const std::vector<size_t>& candidates) {
  double noise = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const TunedKind& kind = report.kinds[i];
    const std::optional<double>& own = kind.candidates[candidates[i]].sqnr_db;
    if (!own) return std::nullopt;
    noise += static_cast<double>(kind.modules()) * NoiseOfDecibel(*own);
  }
  return DecibelOfNoise(noise / static_cast<double>(report.modules()));
}

// The schemes of the candidates: "w4a16", "w4a16+w8a8".
std::string LabelOf(const TuneReport& report, const std::vector<size_t>& candidates) {
  std::set<std::string_view> schemes;
  for (size_t i = 0; i < candidates.size(); ++i) {
    schemes.insert(report.kinds[i].candidates[candidates[i]].scheme);
  }
  return fmt::format("{}", fmt::join(schemes, "+"));
}

TuneTotal TotalOf(const TuneReport& report, std::string target, std::vector<size_t> candidates) {
  TuneTotal total{.target = std::move(target), .label = LabelOf(report, candidates)};
  total.candidates = std::move(candidates);
  for (size_t i = 0; i < total.candidates.size(); ++i) {
    const uint64_t bytes = report.kinds[i].candidates[total.candidates[i]].bytes;
    total.bytes += bytes;
    total.read_bytes +=
        static_cast<double>(bytes) * report.kinds[i].ReadShare(report.batches.front());
  }
  total.sqnr_db = MeanDecibel(report, total.candidates);
  for (const uint64_t rows : report.batches) {
    total.steps.push_back(SumOfStep(report, total.candidates, rows));
  }
  return total;
}

// What `--scheme LABEL` makes of a kind: that scheme where it is for its weights, else what is
// stored.
std::optional<size_t> UniformCandidate(const TunedKind& kind, std::string_view target,
                                       std::string_view label) {
  std::optional<size_t> stored;
  for (size_t i = 0; i < kind.candidates.size(); ++i) {
    const TuneCandidate& candidate = kind.candidates[i];
    if (candidate.target != target) continue;
    if (candidate.scheme == label) return i;
    if (candidate.as_stored) stored = i;
  }
  return stored;
}

void AddTotals(TuneReport& report) {
  for (const TuneRuntime& runtime : report.runtimes) {
    std::set<std::vector<size_t>> seen;
    std::set<std::string> labels;
    for (const TunedKind& kind : report.kinds) {
      for (const TuneCandidate& candidate : kind.candidates) {
        if (candidate.target == runtime.target) labels.insert(candidate.scheme);
      }
    }
    for (const std::string& label : labels) {
      std::vector<size_t> candidates;
      for (const TunedKind& kind : report.kinds) {
        const std::optional<size_t> one = UniformCandidate(kind, runtime.target, label);
        if (one) candidates.push_back(*one);
      }
      if (candidates.size() != report.kinds.size() || !seen.insert(candidates).second) continue;
      report.totals.push_back(TotalOf(report, runtime.target, std::move(candidates)));
    }
  }
}

// What the goal is to make small, in all modules of a kind.
double CostOf(TuneGoal goal, const TuneCandidate& candidate, double noise, double seconds) {
  switch (goal) {
    case TuneGoal::kAccuracy:
      return noise;
    case TuneGoal::kSize:
      return static_cast<double>(candidate.bytes);
    case TuneGoal::kLatency:
    case TuneGoal::kThroughput:
      break;
  }
  return seconds;
}

// The candidates of a target for a kind that ran here, and their places among all.
struct KindOptions {
  std::vector<TuneOption> options;
  std::vector<size_t> places;
};

KindOptions OptionsOf(const TuneReport& report, const TunedKind& kind, std::string_view target) {
  const bool needs_noise = report.min_sqnr_db || report.goal == TuneGoal::kAccuracy;
  KindOptions options;
  for (size_t i = 0; i < kind.candidates.size(); ++i) {
    const TuneCandidate& candidate = kind.candidates[i];
    const TuneStep* step = candidate.StepOf(RowsOfGoal(report));
    if (candidate.target != target || step == nullptr || !step->timing) continue;
    if (needs_noise && !candidate.sqnr_db) continue;
    const double noise =
        candidate.sqnr_db ? static_cast<double>(kind.modules()) * NoiseOfDecibel(*candidate.sqnr_db)
                          : 0;
    if (!std::isfinite(noise)) continue;
    const double seconds = step->timing->seconds;
    options.options.push_back(
        {.cost = CostOf(report.goal, candidate, noise, seconds), .noise = noise, .tie = seconds});
    options.places.push_back(i);
  }
  return options;
}

struct TargetChoice {
  std::string target;
  std::vector<size_t> candidates;
  double cost = 0;
};

// The best of a target. `covers`: every kind has a candidate that was measured.
std::optional<TargetChoice> ChooseFor(const TuneReport& report, const std::string& target,
                                      bool& covers) {
  std::vector<std::vector<TuneOption>> options;
  std::vector<std::vector<size_t>> places;
  for (const TunedKind& kind : report.kinds) {
    KindOptions own = OptionsOf(report, kind, target);
    options.push_back(std::move(own.options));
    places.push_back(std::move(own.places));
  }
  covers = std::ranges::none_of(options, [](const auto& own) { return own.empty(); });
  if (!covers) return std::nullopt;
  std::optional<double> most;
  if (report.min_sqnr_db) {
    most = static_cast<double>(report.modules()) * NoiseOfDecibel(*report.min_sqnr_db);
  }
  const auto chosen = ChooseOptions(options, most);
  if (!chosen) return std::nullopt;
  TargetChoice choice{.target = target, .candidates = {}};
  for (size_t i = 0; i < chosen->size(); ++i) {
    choice.candidates.push_back(places[i][(*chosen)[i]]);
    choice.cost += options[i][(*chosen)[i]].cost;
  }
  return choice;
}

// The nearest rival among whole models: the one with the least time at the batch of the goal.
const TuneTotal* NextBest(const TuneReport& report, const TuneTotal& chosen) {
  const uint64_t rows = RowsOfGoal(report);
  const TuneTotal* next = nullptr;
  for (const TuneTotal& total : report.totals) {
    if (total.candidates == chosen.candidates || !total.StepOf(rows)->timing) continue;
    if (next == nullptr ||
        total.StepOf(rows)->timing->seconds < next->StepOf(rows)->timing->seconds) {
      next = &total;
    }
  }
  return next;
}

std::string_view WhatIsBest(TuneGoal goal) {
  switch (goal) {
    case TuneGoal::kLatency:
      return "the fastest at the smallest batch";
    case TuneGoal::kThroughput:
      return "the fastest at the largest batch";
    case TuneGoal::kAccuracy:
      return "the most exact";
    case TuneGoal::kSize:
      return "the smallest";
  }
  return "";
}

// Compares with the rival, by time and by noise.
std::string AgainstNext(const TuneReport& report, const TuneTotal& chosen, const TuneTotal& next) {
  const uint64_t rows = RowsOfGoal(report);
  const Timing& own = *chosen.StepOf(rows)->timing;
  const Timing& other = *next.StepOf(rows)->timing;
  std::string text = fmt::format("; {} {} ", next.target, next.label);
  if (!IsDecided(own, other)) {
    text += "takes as long within the spread of the figures";
  } else if (own.seconds <= other.seconds) {
    text += fmt::format("takes {:.2f} times as long", other.seconds / own.seconds);
  } else {
    text += fmt::format("takes {:.2f} of its time", other.seconds / own.seconds);
  }
  text += fmt::format(" and {}", HumanBytes(next.bytes));
  if (chosen.sqnr_db && next.sqnr_db) text += fmt::format(" at {:.1f} dB", *next.sqnr_db);
  return text;
}

TuneChoice Explain(const TuneReport& report, TuneTotal total) {
  TuneChoice choice;
  const uint64_t rows = RowsOfGoal(report);
  const TuneStep& step = *total.StepOf(rows);
  choice.reason = fmt::format(
      "{} {} is {} of what was measured{}: {}, {} tokens/s at batch {}", total.target, total.label,
      WhatIsBest(report.goal),
      report.min_sqnr_db ? fmt::format(" and reaches {} dB", *report.min_sqnr_db) : std::string(),
      HumanBytes(total.bytes), RateText(step), rows);
  if (total.sqnr_db) choice.reason += fmt::format(", {:.1f} dB", *total.sqnr_db);
  const TuneTotal* next = NextBest(report, total);
  choice.certain = next == nullptr || IsDecided(*step.timing, *next->StepOf(rows)->timing);
  if (next != nullptr) choice.reason += AgainstNext(report, total, *next);
  choice.total = std::move(total);
  return choice;
}

// Why no target can be recommended, although candidates may have been measured.
std::string WhyNothing(const TuneReport& report) {
  std::string text = "no target has a kernel that was measured for every kind of module";
  for (const TuneRuntime& runtime : report.runtimes) {
    if (!runtime.why_not.empty()) text += fmt::format("; {}: {}", runtime.target, runtime.why_not);
  }
  return text;
}

}  // namespace

void Decide(TuneReport& report) {
  AddTotals(report);
  std::optional<TargetChoice> best;
  bool any_covers = false;
  for (const TuneRuntime& runtime : report.runtimes) {
    bool covers = false;
    std::optional<TargetChoice> own = ChooseFor(report, runtime.target, covers);
    any_covers = any_covers || covers;
    if (own && (!best || own->cost < best->cost)) best = std::move(own);
  }
  if (best) {
    report.choice = Explain(report, TotalOf(report, best->target, std::move(best->candidates)));
    return;
  }
  report.unreachable = any_covers;
  report.why_no_choice = any_covers ? fmt::format("no choice of what was measured reaches {} dB",
                                                  report.min_sqnr_db.value_or(0))
                                    : WhyNothing(report);
}

}  // namespace prepack
