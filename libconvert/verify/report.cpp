#include "verify/report.h"

#include <utility>

namespace prepack {

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
  problems.push_back({std::move(where), std::move(message)});
}

LevelState VerifyReport::Verdict() const {
  LevelState verdict = LevelState::kPassed;
  for (const LevelResult* level : {&integrity, &exactness, &gemm}) {
    if (level->state == LevelState::kFailed) return LevelState::kFailed;
    if (level->state == LevelState::kNotRun) verdict = LevelState::kNotRun;
  }
  return verdict;
}

}  // namespace prepack
