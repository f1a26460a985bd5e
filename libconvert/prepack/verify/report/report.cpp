#include "prepack/verify/report/report.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace prepack {

std::string_view LevelName(Level level) {
  switch (level) {
    case Level::kIntegrity:
      return "integrity";
    case Level::kExactness:
      return "exactness";
    case Level::kGemm:
      return "gemm";
    case Level::kQuality:
      return "quality";
  }
  return "";
}

std::string_view LevelStateName(LevelState state) {
  switch (state) {
    case LevelState::kPassed:
      return "passed";
    case LevelState::kFailed:
      return "failed";
    case LevelState::kNotRun:
      return "not run";
  }
  return "";
}

Tone ToneOf(LevelState state) {
  switch (state) {
    case LevelState::kPassed:
      return Tone::kGood;
    case LevelState::kFailed:
      return Tone::kBad;
    case LevelState::kNotRun:
      return Tone::kUnsure;
  }
  return Tone::kPlain;
}

void LevelResult::Fail(std::string where, std::string message) {
  state = LevelState::kFailed;
  problems.push_back({"", std::move(where), std::move(message)});
}

void LevelResult::FailModule(const std::string& module, std::string message) {
  state = LevelState::kFailed;
  problems.push_back({module, "module " + module, std::move(message)});
}

void LevelResult::Add(LevelResult piece) {
  if (piece.state == LevelState::kFailed) state = LevelState::kFailed;
  if (!piece.reason.empty()) reason = std::move(piece.reason);
  std::ranges::move(piece.problems, std::back_inserter(problems));
  std::ranges::move(piece.notes, std::back_inserter(notes));
}

LevelState VerifyReport::Verdict() const {
  bool any_failed = false;
  bool any_passed = false;
  bool any_missing = false;
  const auto judge = [&](const LevelResult& level) {
    any_failed = any_failed || level.state == LevelState::kFailed;
    any_passed = any_passed || level.state == LevelState::kPassed;
    any_missing = any_missing || (level.state == LevelState::kNotRun && level.asked);
  };
  for (const LevelResult& level : levels) judge(level);
  judge(regression);
  if (any_failed) return LevelState::kFailed;
  return any_passed && !any_missing ? LevelState::kPassed : LevelState::kNotRun;
}

void SetModuleStates(Level level, const LevelResult& result, const ModuleSample* sample,
                     ModuleFigures& figures) {
  for (auto& [name, figure] : figures) {
    figure.looked_at = InSample(sample, name);
    figure.state(level) = figure.looked_at ? LevelState::kPassed : LevelState::kNotRun;
  }
  for (const Problem& problem : result.problems) {
    const auto figure = figures.find(problem.module);
    if (figure != figures.end()) figure->second.state(level) = LevelState::kFailed;
  }
}

}  // namespace prepack
