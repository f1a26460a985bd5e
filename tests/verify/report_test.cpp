#include "prepack/verify/report/report.h"

#include "catch.h"

namespace prepack::testing {
namespace {

VerifyReport ReportOf(LevelState integrity, LevelState exactness, LevelState gemm) {
  VerifyReport report;
  report.level(Level::kIntegrity).state = integrity;
  report.level(Level::kExactness).state = exactness;
  report.level(Level::kGemm).state = gemm;
  report.level(Level::kQuality).asked = false;
  return report;
}

TEST_CASE("a verdict is passed only when every level ran and passed") {
  using enum LevelState;
  CHECK(ReportOf(kPassed, kPassed, kPassed).Verdict() == kPassed);
  CHECK(ReportOf(kPassed, kPassed, kNotRun).Verdict() == kNotRun);
  CHECK(ReportOf(kPassed, kNotRun, kNotRun).Verdict() == kNotRun);
  CHECK(ReportOf(kNotRun, kPassed, kFailed).Verdict() == kFailed);
  CHECK(ReportOf(kFailed, kNotRun, kNotRun).Verdict() == kFailed);
  CHECK(VerifyReport{}.Verdict() == kNotRun);  // nothing was looked at
}

TEST_CASE("levels that nobody asked for do not decide, but something must have passed") {
  using enum LevelState;
  VerifyReport report = ReportOf(kPassed, kNotRun, kNotRun);
  report.level(Level::kExactness).asked = report.level(Level::kGemm).asked = false;
  CHECK(report.Verdict() == kPassed);
  report.regression.asked = true;
  CHECK(report.Verdict() == kNotRun);
  report = {};
  for (LevelResult& level : report.levels) level.asked = false;
  CHECK(report.Verdict() == kNotRun);
}

TEST_CASE("a problem fails its level") {
  LevelResult level{.state = LevelState::kPassed};
  level.Fail("module a", "wrong");
  CHECK(level.state == LevelState::kFailed);
  CHECK(level.problems.size() == 1);
  CHECK(LevelStateName(level.state) == "failed");
  CHECK(LevelStateName(LevelState::kNotRun) == "not run");
}

TEST_CASE("a module has passed no level before it was looked at") {
  for (const Level level : kLevels) CHECK(ModuleVerification().state(level) == LevelState::kNotRun);
}

}  // namespace
}  // namespace prepack::testing
