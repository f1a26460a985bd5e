#include "prepack/tune/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "prepack/base/text.h"

namespace prepack {
namespace {

constexpr std::array<std::pair<TuneGoal, std::string_view>, 4> kGoalNames = {{
    {TuneGoal::kLatency, "latency"},
    {TuneGoal::kThroughput, "throughput"},
    {TuneGoal::kAccuracy, "accuracy"},
    {TuneGoal::kSize, "size"},
}};

const TuneStep* FindStep(const std::vector<TuneStep>& steps, uint64_t rows) {
  const auto step = std::ranges::find(steps, rows, &TuneStep::rows);
  return step == steps.end() ? nullptr : &*step;
}

std::string DecibelText(const std::optional<double>& decibel) {
  return decibel ? fmt::format("{:.1f} dB", *decibel) : std::string("accuracy not measured");
}

// ", batch 1: 12.30 ms".
std::string TimesText(const TuneCandidate& candidate) {
  std::string text;
  for (const TuneStep& step : candidate.steps) {
    if (step.timing) text += fmt::format(", batch {}: {}", step.rows, SecondsText(step));
  }
  return text;
}

}  // namespace

const TuneStep* TuneCandidate::StepOf(uint64_t rows) const {
  return FindStep(steps, rows);
}

bool TuneCandidate::IsMeasured(uint64_t rows) const {
  const TuneStep* step = StepOf(rows);
  return step != nullptr && step->timing.has_value();
}

std::string LayoutsText(const TuneCandidate& candidate) {
  std::string text;
  for (const std::string& layout : candidate.layouts) {
    const bool own = layout.starts_with(candidate.target + "/");
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", layout,
                        own ? "" : fmt::format(" ({})", candidate.target));
  }
  return text;
}

std::string ShapeText(const TunedShape& shape) {
  if (shape.experts == 0) return fmt::format("{} × {}x{}", shape.units, shape.n, shape.k);
  return fmt::format("{} × {} experts, {} per token", shape.units, shape.experts, shape.top_k);
}

size_t TunedKind::modules() const {
  size_t count = 0;
  for (const TunedShape& shape : shapes) count += shape.modules;
  return count;
}

double TunedKind::ReadShare(uint64_t tokens) const {
  double read = 0;
  double all = 0;
  for (const TunedShape& shape : shapes) {
    const auto units = static_cast<double>(shape.units);
    const double share = shape.experts == 0 ? 1
                                            : static_cast<double>(tokens * shape.top_k) /
                                                  static_cast<double>(shape.experts);
    read += units * std::min(1.0, share);
    all += units;
  }
  return read / all;
}

const TuneStep* TuneTotal::StepOf(uint64_t rows) const {
  return FindStep(steps, rows);
}

size_t TuneReport::modules() const {
  size_t count = 0;
  for (const TunedKind& kind : kinds) count += kind.modules();
  return count;
}

double RowsPerSecond(const TuneStep& step) {
  return step.timing ? static_cast<double>(step.rows) / step.timing->seconds : 0;
}

std::string RateText(const TuneStep& step) {
  const double rate = RowsPerSecond(step);
  const int digits = rate < 10 ? 2 : rate < 100 ? 1 : 0;
  return fmt::format("{:.{}f}", rate, digits);
}

std::string SecondsText(const TuneStep& step) {
  if (!step.timing) return "-";
  const double seconds = step.timing->seconds;
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

std::string_view GoalName(TuneGoal goal) {
  return kGoalNames[static_cast<size_t>(goal)].second;
}

std::optional<TuneGoal> GoalFromName(std::string_view name) {
  for (const auto& [goal, known] : kGoalNames) {
    if (known == name) return goal;
  }
  return std::nullopt;
}

std::string SchemeFileText(const TuneReport& report) {
  if (!report.choice) return "";
  const TuneTotal& total = report.choice->total;
  std::string text = fmt::format(
      "# Chosen by `prepack tune --for {}` for --target {}, from measurements on\n"
      "# {}, {} threads. `prepack convert --target {} --scheme @FILE` takes this file.\n#\n",
      GoalName(report.goal), total.target, report.cpu, report.threads, total.target);
  for (const TuneStep& step : total.steps) {
    if (!step.timing) continue;
    text +=
        fmt::format("# batch {}: {} tokens/s of all linear layers\n", step.rows, RateText(step));
  }
  text += fmt::format("# {}\n#\n# {}\n\n", DecibelText(total.sqnr_db), report.choice->reason);
  for (size_t i = 0; i < report.kinds.size(); ++i) {
    const TunedKind& kind = report.kinds[i];
    const TuneCandidate& chosen = kind.candidates[total.candidates[i]];
    text +=
        fmt::format("# {}, {}, {}, {}{}\n{}={}\n", Plural(kind.modules(), "module"),
                    fmt::join(chosen.layouts, ", "), HumanBytes(chosen.bytes),
                    DecibelText(chosen.sqnr_db), TimesText(chosen), kind.pattern, chosen.scheme);
  }
  return text;
}

}  // namespace prepack
