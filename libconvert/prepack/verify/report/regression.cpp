#include "prepack/verify/report/regression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "prepack/verify/report/summary.h"

namespace prepack {
namespace {

// "bf16" in "f32 (bf16 values)": the machine decides which unit multiplies, but not the values.
std::string_view ValuesOf(std::string_view activations) {
  constexpr std::string_view kPrefix = "f32 (";
  constexpr std::string_view kSuffix = " values)";
  if (!activations.starts_with(kPrefix) || !activations.ends_with(kSuffix)) return activations;
  activations.remove_prefix(kPrefix.size());
  activations.remove_suffix(kSuffix.size());
  return activations;
}

// Compares the figures of one module and counts them.
class FigureComparison {
 public:
  FigureComparison(const std::string& module, double tolerance_db, LevelResult& result)
      : module_(module), tolerance_db_(tolerance_db), result_(result) {}

  size_t compared() const { return compared_; }

  void Levels(const ModuleVerification& then, const ModuleVerification& now,
              const VerifyReport& report);
  void Gemm(const GemmFigures& then, const GemmFigures& now);
  void Quality(const QualityFigures& then, const QualityFigures& now);
  void Note(std::string message) {
    result_.notes.push_back({module_, "module " + module_, std::move(message)});
  }

 private:
  void Inputs(const InputFigures& then, const InputFigures& now);
  void One(std::string_view what, double then, double now);
  void OneOfQuality(std::string_view what, const std::optional<double>& then,
                    const std::optional<double>& now);
  void Fail(std::string message) { result_.FailModule(module_, std::move(message)); }

  const std::string& module_;
  double tolerance_db_;
  LevelResult& result_;
  size_t compared_ = 0;
};

void FigureComparison::Levels(const ModuleVerification& then, const ModuleVerification& now,
                              const VerifyReport& report) {
  for (const Level level : kLevels) {
    if (then.state(level) != LevelState::kPassed || now.state(level) == LevelState::kPassed) {
      continue;
    }
    // Reported once, not for every module.
    if (report.level(level).state == LevelState::kNotRun) continue;
    Fail(fmt::format("{} passed then and is {} now", LevelName(level),
                     LevelStateName(now.state(level))));
  }
}

void FigureComparison::One(std::string_view what, double then, double now) {
  if (std::isnan(then)) return;  // nothing was proved then
  ++compared_;
  // Infinity minus infinity is NaN, so compare for equality first.
  if (now == then || now >= then - tolerance_db_) return;
  Fail(std::isnan(now)
           ? fmt::format("the {} was {} dB and now proves nothing", what, DecibelText(then))
           : fmt::format("the {} fell from {} dB to {} dB (tolerance {} dB)", what,
                         DecibelText(then), DecibelText(now), tolerance_db_));
}

void FigureComparison::Inputs(const InputFigures& then, const InputFigures& now) {
  const auto name = [&then](std::string_view what) {
    return fmt::format("{} SQNR on {} activations (M = {})", what, then.input, then.rows);
  };
  One(name("kernel"), then.kernel.sqnr_db, now.kernel.sqnr_db);
  One(name("worst-channel kernel"), then.kernel.worst_channel_sqnr_db,
      now.kernel.worst_channel_sqnr_db);
  One(name("end-to-end"), then.end_to_end.sqnr_db, now.end_to_end.sqnr_db);
  One(name("worst-channel end-to-end"), then.end_to_end.worst_channel_sqnr_db,
      now.end_to_end.worst_channel_sqnr_db);
}

void FigureComparison::Gemm(const GemmFigures& then, const GemmFigures& now) {
  if (ValuesOf(then.activations) != ValuesOf(now.activations)) {
    Note(fmt::format("the products are not comparable: activations were {}, now {}",
                     then.activations, now.activations));
    return;
  }
  if (then.implementation != now.implementation) {
    Note(fmt::format("was multiplied by {}, now by {}", then.implementation, now.implementation));
  }
  for (const InputFigures& input : then.inputs) {
    const auto same_rows = std::ranges::find_if(now.inputs, [&](const InputFigures& other) {
      return other.input == input.input && other.rows == input.rows;
    });
    const auto same_name = std::ranges::find(now.inputs, input.input, &InputFigures::input);
    if (same_rows != now.inputs.end()) {
      Inputs(input, *same_rows);
    } else if (same_name == now.inputs.end()) {
      Fail(fmt::format("was multiplied with {} activations then, but not now", input.input));
    } else {
      Note(fmt::format("the products with {} activations are not comparable: M = {} then, {} now",
                       input.input, input.rows, same_name->rows));
    }
  }
  if (then.agreement_db && now.agreement_db &&
      then.second_implementation == now.second_implementation &&
      then.implementation == now.implementation) {
    One("agreement with " + then.second_implementation, *then.agreement_db, *now.agreement_db);
  } else if (then.agreement_db && !now.agreement_db) {
    Note("a second implementation agreed then, but there is none now");
  }
}

void FigureComparison::OneOfQuality(std::string_view what, const std::optional<double>& then,
                                    const std::optional<double>& now) {
  if (!then) return;
  if (!now) return Fail(fmt::format("the {} was measured then, but not now", what));
  One(what, *then, *now);
}

void FigureComparison::Quality(const QualityFigures& then, const QualityFigures& now) {
  OneOfQuality("weight SQNR", then.weight_sqnr_db, now.weight_sqnr_db);
  OneOfQuality("output SQNR", then.output_sqnr_db, now.output_sqnr_db);
}

void NoteDifferences(const ModuleVerification& then, const ModuleVerification& now,
                     FigureComparison& comparison) {
  if (then.layout != now.layout) {
    comparison.Note(fmt::format("its layout was {}, now {}", then.layout, now.layout));
  }
  if (then.n != now.n || then.k != now.k) {
    comparison.Note(
        fmt::format("its shape was [{}, {}], now [{}, {}]", then.n, then.k, now.n, now.k));
  }
}

// Gives how many figures were compared.
size_t CompareModule(const ModuleVerification& then, const ModuleVerification& now,
                     const VerifyReport& report, double tolerance_db, LevelResult& result) {
  FigureComparison comparison(then.module, tolerance_db, result);
  NoteDifferences(then, now, comparison);
  comparison.Levels(then, now, report);
  if (then.gemm && now.gemm) comparison.Gemm(*then.gemm, *now.gemm);
  // If there are no figures now, all of them are gone.
  if (then.quality && now.looked_at) {
    comparison.Quality(*then.quality, now.quality.value_or(QualityFigures()));
  }
  return comparison.compared();
}

void CompareLevels(const VerifyReport& earlier, const VerifyReport& now, LevelResult& result) {
  for (const Level level : kLevels) {
    const LevelResult& today = now.level(level);
    if (earlier.level(level).state != LevelState::kPassed || today.state == LevelState::kPassed) {
      continue;
    }
    result.Fail(fmt::format("level {}", LevelName(level)),
                fmt::format("passed then and is {} now{}", LevelStateName(today.state),
                            today.reason.empty() ? "" : ": " + today.reason));
  }
}

}  // namespace

void CompareWithEarlier(const VerifyReport& earlier, double tolerance_db, VerifyReport& now) {
  LevelResult result{.state = LevelState::kPassed};
  if (earlier.target != now.target) {
    result.notes.push_back(
        {"", "target", fmt::format("it was {}, now {}", earlier.target, now.target)});
  }
  CompareLevels(earlier, now, result);
  std::unordered_map<std::string_view, const ModuleVerification*> modules;
  for (const ModuleVerification& module : now.modules) modules[module.module] = &module;
  size_t compared = 0;
  size_t left_out = 0;
  for (const ModuleVerification& then : earlier.modules) {
    const auto today = modules.find(then.module);
    if (today == modules.end()) {
      result.FailModule(then.module, "was in the folder then, but is not now");
      continue;
    }
    if (!then.looked_at || !today->second->looked_at) {
      ++left_out;
    } else {
      compared += CompareModule(then, *today->second, now, tolerance_db, result);
    }
    modules.erase(today);
  }
  for (const ModuleVerification& module : now.modules) {
    if (modules.contains(module.module)) {
      result.notes.push_back(
          {module.module, "module " + module.module, "new: there is nothing to compare it with"});
    }
  }
  if (left_out != 0) {
    result.notes.push_back(
        {"", "sample",
         fmt::format("modules that are not in both samples and were not compared: {}", left_out)});
  }
  if (compared == 0 && result.state == LevelState::kPassed) {
    result.state = LevelState::kNotRun;
    result.reason = "the earlier report has no figures to compare with";
  }
  now.regression = std::move(result);
}

}  // namespace prepack
