#include "verify/report.h"

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

void LevelResult::Fail(std::string where, std::string message) {
  state = LevelState::kFailed;
  problems.push_back({"", std::move(where), std::move(message)});
}

void LevelResult::FailModule(const std::string& module, std::string message) {
  state = LevelState::kFailed;
  problems.push_back({module, "module " + module, std::move(message)});
}

LevelState VerifyReport::Verdict() const {
  LevelState verdict = LevelState::kPassed;
  const auto judge = [&verdict](const LevelResult& level) {
    if (level.state == LevelState::kFailed) {
      verdict = LevelState::kFailed;
    } else if (level.state == LevelState::kNotRun && level.asked &&
               verdict != LevelState::kFailed) {
      verdict = LevelState::kNotRun;
    }
  };
  for (const LevelResult& level : levels) judge(level);
  judge(regression);
  return verdict;
}

}  // namespace prepack
