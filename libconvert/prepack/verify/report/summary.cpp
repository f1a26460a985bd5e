#include "prepack/verify/report/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace prepack {
namespace {

// A figure that proves nothing is below every other.
double Rank(double decibel) {
  return std::isnan(decibel) ? -std::numeric_limits<double>::infinity() : decibel;
}

std::string ChannelText(const Figure& figure) {
  return fmt::format("n {}: {}", figure.worst_channel, DecibelText(figure.worst_channel_sqnr_db));
}

std::string ExactText(const ModuleVerification& module) {
  if (!module.exact) return "-";
  return *module.exact ? "yes" : "NO";
}

std::string ImplementationText(const ModuleVerification& module) {
  if (!module.looked_at) return "not in the sample";
  if (!module.gemm) return "-";
  return fmt::format("{}, x {}", module.gemm->implementation, module.gemm->activations);
}

std::string BarText(const std::optional<double>& bar) {
  return bar ? fmt::format(" (at least {:.1f})", *bar) : std::string();
}

std::string FigureText(const Figure& figure) {
  return fmt::format("SQNR {} dB, worst channel {} dB, cosine {:.6f}, largest error {:.3g}",
                     DecibelText(figure.sqnr_db), ChannelText(figure), figure.cosine,
                     figure.max_abs_error);
}

std::vector<std::string> GemmLines(const GemmFigures& gemm) {
  std::vector<std::string> lines = {fmt::format(
      "GEMM: {}, x {}, {} output channels", gemm.implementation, gemm.activations, gemm.channels)};
  for (const InputFigures& input : gemm.inputs) {
    lines.push_back(fmt::format("{} activations, {} rows: kernel{}: {}", input.input, input.rows,
                                BarText(input.kernel_bar_db), FigureText(input.kernel)));
    lines.push_back(fmt::format("{} activations, {} rows: end to end{}: {}", input.input,
                                input.rows, BarText(input.end_to_end_bar_db),
                                FigureText(input.end_to_end)));
  }
  if (!gemm.second_implementation.empty()) {
    lines.push_back(fmt::format("agreement with {}: {} dB", gemm.second_implementation,
                                DecibelText(gemm.agreement_db)));
  }
  return lines;
}

std::vector<std::string> QualityLines(const QualityFigures& quality) {
  std::vector<std::string> lines = {
      fmt::format("weight SQNR {} dB", DecibelText(quality.weight_sqnr_db)),
      fmt::format("output SQNR {} dB", DecibelText(quality.output_sqnr_db))};
  if (quality.below_peers_db) {
    lines.push_back(fmt::format("{} dB below the median of similar modules",
                                DecibelText(quality.below_peers_db)));
  }
  return lines;
}

// Of the figures of all modules, the one that is closest to its bar.
struct Closest {
  double sqnr_db = 0;
  double bar_db = 0;
  bool any = false;

  void Look(double figure, const std::optional<double>& bar) {
    if (!bar || (any && Rank(figure) - *bar >= Rank(sqnr_db) - bar_db)) return;
    *this = {.sqnr_db = figure, .bar_db = *bar, .any = true};
  }
  std::string Text(std::string_view what) const {
    return fmt::format("{} {} dB{}", what, DecibelText(sqnr_db), BarText(bar_db));
  }
};

// Of modules that no kernel reads the weights are compared.
size_t ComparedModules(const VerifyReport& report) {
  return static_cast<size_t>(
      std::ranges::count_if(report.modules, [](const ModuleVerification& module) {
        return !module.gemm && module.state(Level::kGemm) != LevelState::kNotRun;
      }));
}

std::string ComparedText(size_t modules) {
  return fmt::format("all weights of {} module{} decoded a second time, from source and output",
                     modules, modules == 1 ? "" : "s");
}

std::string GemmSentence(const VerifyReport& report) {
  std::vector<std::string> inputs;
  Closest kernel;
  Closest end_to_end;
  size_t multiplied = 0;
  for (const ModuleVerification& module : report.modules) {
    if (!module.gemm) continue;
    ++multiplied;
    for (const InputFigures& input : module.gemm->inputs) {
      if (std::ranges::find(inputs, input.input) == inputs.end()) inputs.push_back(input.input);
      kernel.Look(input.kernel.sqnr_db, input.kernel_bar_db);
      end_to_end.Look(input.end_to_end.sqnr_db, input.end_to_end_bar_db);
    }
  }
  const size_t compared = ComparedModules(report);
  if (multiplied == 0 && compared > 0) return ComparedText(compared);
  std::string text =
      fmt::format("{}: {} module{}", report.engine, multiplied, multiplied == 1 ? "" : "s");
  if (!inputs.empty()) text += fmt::format(", {} activations", fmt::join(inputs, ", "));
  if (kernel.any) text += "; closest to the bar: " + kernel.Text("kernel");
  if (end_to_end.any) text += ", " + end_to_end.Text("end to end");
  if (compared > 0) text += "; " + ComparedText(compared);
  return text;
}

// What the level checked.
std::string LookedAt(const VerifyReport& report, Level level) {
  switch (level) {
    case Level::kIntegrity:
      return "sizes, hashes, headers and packing fingerprints";
    case Level::kExactness:
      return "codes, zero points, scales and all other tensors as in the source";
    case Level::kGemm:
      return GemmSentence(report);
    case Level::kQuality:
      return fmt::format("weights and products against {}", report.baseline);
  }
  return "";
}

void CollectNames(const LevelResult& level, std::set<std::string_view>& names) {
  for (const Problem& problem : level.problems) {
    if (!problem.module.empty()) names.insert(problem.module);
  }
}

}  // namespace

const InputFigures* LowestKernel(const GemmFigures& gemm) {
  const auto lowest = std::ranges::min_element(
      gemm.inputs, {}, [](const InputFigures& input) { return Rank(input.kernel.sqnr_db); });
  return lowest == gemm.inputs.end() ? nullptr : &*lowest;
}

const InputFigures* Gaussian(const GemmFigures& gemm) {
  const InputFigures* best = nullptr;
  for (const InputFigures& input : gemm.inputs) {
    if (input.input == "gaussian" && (best == nullptr || input.rows > best->rows)) best = &input;
  }
  return best != nullptr || gemm.inputs.empty() ? best : &gemm.inputs.front();
}

std::string DecibelText(const std::optional<double>& decibel) {
  if (!decibel) return "-";
  return std::isnan(*decibel) ? "undefined" : fmt::format("{:.1f}", *decibel);
}

bool HasQuality(const VerifyReport& report) {
  return std::ranges::any_of(
      report.modules, [](const ModuleVerification& module) { return module.quality.has_value(); });
}

std::vector<ReportColumn> ModuleColumns(bool with_quality) {
  std::vector<ReportColumn> columns = {{"module"},
                                       {"layout"},
                                       {"exact"},
                                       {"scale diff", true},
                                       {"kernel dB", true},
                                       {"end-to-end dB", true},
                                       {"worst channel", true}};
  if (with_quality) {
    columns.push_back({"weight dB", true});
    columns.push_back({"output dB", true});
  }
  columns.push_back({"GEMM"});
  return columns;
}

std::vector<std::string> ModuleCells(const ModuleVerification& module, bool with_quality) {
  std::vector<std::string> cells = {
      module.module, module.layout, ExactText(module),
      module.max_scale_difference ? fmt::format("{:.1e}", *module.max_scale_difference) : "-"};
  const InputFigures* lowest = module.gemm ? LowestKernel(*module.gemm) : nullptr;
  const InputFigures* gaussian = module.gemm ? Gaussian(*module.gemm) : nullptr;
  // In a few rows, the worst channel is one whose output is small by chance.
  const InputFigures* worst = module.gemm ? Gaussian(*module.gemm) : nullptr;
  cells.push_back(lowest != nullptr ? DecibelText(lowest->kernel.sqnr_db) : "-");
  cells.push_back(gaussian != nullptr ? DecibelText(gaussian->end_to_end.sqnr_db) : "-");
  cells.push_back(worst != nullptr ? ChannelText(worst->kernel) : "-");
  if (with_quality) {
    const QualityFigures quality = module.quality.value_or(QualityFigures{});
    cells.push_back(DecibelText(quality.weight_sqnr_db));
    cells.push_back(DecibelText(quality.output_sqnr_db));
  }
  cells.push_back(ImplementationText(module));
  return cells;
}

std::vector<std::string> FigureLines(const ModuleVerification& module, Level level) {
  switch (level) {
    case Level::kIntegrity:
      return {};
    case Level::kExactness:
      if (!module.exact) return {};
      return {fmt::format(
          "exact: {}, largest difference of a scale: {}", *module.exact ? "yes" : "no",
          module.max_scale_difference ? fmt::format("{:.1e}", *module.max_scale_difference) : "-")};
    case Level::kGemm:
      return module.gemm ? GemmLines(*module.gemm) : std::vector<std::string>();
    case Level::kQuality:
      return module.quality ? QualityLines(*module.quality) : std::vector<std::string>();
  }
  return {};
}

std::vector<ShownLevel> ShownLevels(const VerifyReport& report) {
  std::vector<ShownLevel> shown;
  for (const Level level : kLevels) {
    const LevelResult& result = report.level(level);
    const bool ran = result.state != LevelState::kNotRun;
    if (level == Level::kQuality && !result.asked && !ran) continue;
    shown.push_back({.name = LevelName(level),
                     .result = &result,
                     .sentence = ran ? LookedAt(report, level) : result.reason,
                     .level = level});
  }
  if (!report.against.empty()) {
    shown.push_back({.name = "regression",
                     .result = &report.regression,
                     .sentence = report.regression.state == LevelState::kNotRun
                                     ? report.regression.reason
                                     : fmt::format("against {}", report.against),
                     .level = std::nullopt});
  }
  return shown;
}

std::string SampleSentence(const VerifyReport& report) {
  if (!report.sample) return "";
  return fmt::format("checked {} of {} modules (--sample {}, seed {})", report.sample->modules,
                     report.modules.size(), report.sample->fraction, report.sample->seed);
}

std::string VerdictSentence(const VerifyReport& report) {
  const LevelState verdict = report.Verdict();
  std::string text(LevelStateName(verdict));
  if (verdict == LevelState::kPassed) return text;
  std::vector<std::string_view> names;
  for (const ShownLevel& level : ShownLevels(report)) {
    const bool counts = verdict == LevelState::kFailed || level.result->asked;
    if (counts && level.result->state == verdict) names.push_back(level.name);
  }
  return fmt::format("{}: {}", text, fmt::join(names, ", "));
}

std::optional<double> KernelMargin(const ModuleVerification& module) {
  if (!module.gemm || module.gemm->inputs.empty()) return std::nullopt;
  double margin = std::numeric_limits<double>::infinity();
  for (const InputFigures& input : module.gemm->inputs) {
    margin = std::min(margin, Rank(input.kernel.sqnr_db) - input.kernel_bar_db);
  }
  return margin;
}

std::vector<const ModuleVerification*> WorstModules(const VerifyReport& report, size_t count) {
  std::vector<const ModuleVerification*> modules;
  for (const ModuleVerification& module : report.modules) {
    if (KernelMargin(module)) modules.push_back(&module);
  }
  std::ranges::stable_sort(modules, {},
                           [](const ModuleVerification* module) { return *KernelMargin(*module); });
  if (modules.size() > count) modules.resize(count);
  return modules;
}

std::set<std::string_view> ModulesWithProblems(const VerifyReport& report) {
  std::set<std::string_view> names;
  for (const LevelResult& level : report.levels) CollectNames(level, names);
  CollectNames(report.regression, names);
  for (const ModuleVerification& module : report.modules) {
    if (std::ranges::find(module.levels, LevelState::kFailed) != module.levels.end()) {
      names.insert(module.module);
    }
  }
  return names;
}

std::vector<Problem> Folded(const std::vector<Problem>& problems) {
  std::vector<Problem> folded;
  std::vector<size_t> more;
  std::map<std::string_view, size_t> place;  // of each message that modules share
  for (const Problem& problem : problems) {
    const auto [found, is_new] = place.try_emplace(problem.message, folded.size());
    if (is_new || problem.module.empty() || folded[found->second].module.empty()) {
      folded.push_back(problem);
      more.push_back(0);
    } else {
      ++more[found->second];
    }
  }
  for (size_t i = 0; i < folded.size(); ++i) {
    if (more[i] != 0) folded[i].where += fmt::format(" and {} more", more[i]);
  }
  return folded;
}

std::string ProblemText(const Problem& problem) {
  if (problem.where.empty() || problem.message.starts_with(problem.where)) return problem.message;
  return fmt::format("{}: {}", problem.where, problem.message);
}

}  // namespace prepack
