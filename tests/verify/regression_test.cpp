#include "prepack/verify/report/regression.h"

#include <string>
#include <vector>

#include "catch.h"
#include "example_report.h"
#include "text.h"

namespace prepack::testing {
namespace {

const LevelResult& Compare(const VerifyReport& earlier, VerifyReport& now,
                           double tolerance_db = kDefaultToleranceDb) {
  CompareWithEarlier(earlier, tolerance_db, now);
  CHECK(now.regression.asked);
  return now.regression;
}

// One report against itself with a change of the first module today.
LevelResult AfterChange(void (*change)(ModuleVerification&)) {
  const VerifyReport earlier = FullReport();
  VerifyReport now = earlier;
  change(now.modules.front());
  return Compare(earlier, now);
}

// The one problem that there is.
std::string OnlyProblem(const LevelResult& result) {
  CHECK(result.state == LevelState::kFailed);
  REQUIRE(result.problems.size() == 1);
  return result.problems.front().message;
}

TEST_CASE("a report is no worse than itself, with any figures") {
  for (const VerifyReport& earlier : {ExampleReport(), FullReport()}) {
    VerifyReport now = earlier;
    CHECK(Compare(earlier, now, 0).state == LevelState::kPassed);
    CHECK(now.regression.problems.empty());
  }
}

TEST_CASE("a figure may fall by the tolerance and no more") {
  VerifyReport earlier = ExampleReport(1);
  VerifyReport now = earlier;
  now.modules[0].gemm->inputs[0].kernel.sqnr_db = 55.0;
  CHECK(Compare(earlier, now).state == LevelState::kPassed);
  now.modules[0].gemm->inputs[0].kernel.sqnr_db = 54.9;
  CHECK(OnlyProblem(Compare(earlier, now)) ==
        "the kernel SQNR on gaussian activations (M = 16) fell from 55.5 dB to 54.9 dB (tolerance "
        "0.5 dB)");
  CHECK(now.regression.problems[0].module == "a");
  CHECK(now.regression.problems[0].where == "module a");
  CHECK(Compare(earlier, now, 0.7).state == LevelState::kPassed);
  CHECK(now.Verdict() == LevelState::kPassed);
  now.modules[0].gemm->inputs[0].kernel.sqnr_db = 70;
  CHECK(Compare(earlier, now, 0).state == LevelState::kPassed);
}

TEST_CASE("every kind of figure is compared") {
  CHECK(
      OnlyProblem(AfterChange([](ModuleVerification& module) {
        module.gemm->inputs[0].kernel.worst_channel_sqnr_db = 50;
      })) ==
      "the worst-channel kernel SQNR on gaussian activations (M = 16) fell from 51.5 dB to 50.0 dB "
      "(tolerance "
      "0.5 dB)");
  CHECK(
      Contains(OnlyProblem(AfterChange([](ModuleVerification& module) {
                 module.gemm->inputs[1].end_to_end.sqnr_db = 50;
               })),
               "the end-to-end SQNR on one-hot activations (M = 16) fell from 60.0 dB to 50.0 dB"));
  CHECK(Contains(OnlyProblem(AfterChange([](ModuleVerification& module) {
                   module.gemm->inputs[1].end_to_end.worst_channel_sqnr_db = 50;
                 })),
                 "the worst-channel end-to-end SQNR on one-hot activations (M = 16)"));
  CHECK(Contains(
      OnlyProblem(AfterChange([](ModuleVerification& module) { module.gemm->agreement_db = 90; })),
      "the agreement with model of vllm-cpu/wna16 fell from inf dB to 90.0 dB"));
  CHECK(Contains(OnlyProblem(AfterChange(
                     [](ModuleVerification& module) { module.quality->weight_sqnr_db = 19; })),
                 "the weight SQNR fell from 20.5 dB to 19.0 dB"));
}

TEST_CASE("no error at all is above every number, and what proves nothing is below") {
  CHECK(Contains(OnlyProblem(AfterChange([](ModuleVerification& module) {
                   module.gemm->inputs[1].kernel.sqnr_db = 200;
                 })),
                 "the kernel SQNR on one-hot activations (M = 16) fell from inf dB to 200.0 dB"));
  CHECK(OnlyProblem(AfterChange(
            [](ModuleVerification& module) { module.gemm->inputs[0].kernel.sqnr_db = kNan; })) ==
        "the kernel SQNR on gaussian activations (M = 16) was 55.5 dB and now proves nothing");
  // What proved nothing then may be anything now.
  CHECK(AfterChange([](ModuleVerification& module) {
          module.gemm->inputs[2].kernel.sqnr_db = -kInfinity;
        }).state == LevelState::kPassed);
}

TEST_CASE("what was measured then and is not now is a regression") {
  CHECK(Contains(OnlyProblem(AfterChange([](ModuleVerification& module) {
                   module.gemm->inputs.erase(module.gemm->inputs.begin());
                 })),
                 "was multiplied with gaussian activations then, but not now"));
  CHECK(Contains(OnlyProblem(AfterChange(
                     [](ModuleVerification& module) { module.quality->weight_sqnr_db.reset(); })),
                 "the weight SQNR was measured then, but not now"));
  VerifyReport earlier = ExampleReport(2);
  VerifyReport now = ExampleReport(1);
  CHECK(OnlyProblem(Compare(earlier, now)) == "was in the folder then, but is not now");
  CHECK(now.regression.problems[0].module == "b");
}

TEST_CASE("a level that passed then must pass now") {
  const VerifyReport earlier = ExampleReport(2);
  VerifyReport now = earlier;
  now.level(Level::kGemm) = {.state = LevelState::kNotRun, .reason = "no oneDNN"};
  for (ModuleVerification& module : now.modules) {
    module.state(Level::kGemm) = LevelState::kNotRun;
    module.gemm.reset();
  }
  const LevelResult& skipped = Compare(earlier, now);
  CHECK(OnlyProblem(skipped) == "passed then and is not run now: no oneDNN");
  CHECK(skipped.problems[0].where == "level gemm");

  now = earlier;
  now.level(Level::kExactness).FailModule("b", "wrong");
  now.modules[1].state(Level::kExactness) = LevelState::kFailed;
  const LevelResult& failed = Compare(earlier, now);
  REQUIRE(failed.problems.size() == 2);
  CHECK(failed.problems[0].message == "passed then and is failed now");
  CHECK(failed.problems[1].message == "exactness passed then and is failed now");
  CHECK(failed.problems[1].module == "b");
}

TEST_CASE("what is new or different is noted") {
  const VerifyReport earlier = ExampleReport(1);
  VerifyReport now = ExampleReport(2);
  now.target = "zentorch";
  now.modules[0].layout = "zentorch/woq";
  now.modules[0].n = 64;
  now.modules[0].gemm->implementation = "model of zentorch/woq";
  const LevelResult& result = Compare(earlier, now);
  CHECK(result.state == LevelState::kPassed);
  REQUIRE(result.notes.size() == 5);
  CHECK(result.notes[0].message == "it was vllm-cpu, now zentorch");
  CHECK(result.notes[1].message == "its layout was vllm-cpu/wna16, now zentorch/woq");
  CHECK(result.notes[2].message == "its shape was [128, 384], now [64, 384]");
  CHECK(result.notes[3].message ==
        "was multiplied by brg_matmul:avx2, now by model of zentorch/woq");
  CHECK(result.notes[4].message == "new: there is nothing to compare it with");
  CHECK(result.notes[4].module == "b");
}

TEST_CASE("figures of other activations or rows are not compared") {
  const VerifyReport earlier = ExampleReport(1);
  VerifyReport now = earlier;
  now.modules[0].gemm->inputs[0].kernel.sqnr_db = 1;
  now.modules[0].gemm->activations = "int8";
  const LevelResult& other = Compare(earlier, now);
  CHECK(other.state == LevelState::kNotRun);
  CHECK(other.reason == "the earlier report has no figures to compare with");
  CHECK(now.Verdict() == LevelState::kNotRun);
  REQUIRE(other.notes.size() == 1);
  CHECK(other.notes[0].message ==
        "the products are not comparable: activations were f32 (bf16 values), now int8");
  // The same values, multiplied by another unit of the machine.
  now.modules[0].gemm->activations = "bf16";
  CHECK(Compare(earlier, now).state == LevelState::kFailed);

  now = earlier;
  now.modules[0].gemm->inputs[0].rows = 8;
  CHECK(Compare(earlier, now).state == LevelState::kNotRun);
  CHECK(now.regression.notes[0].message ==
        "the products with gaussian activations are not comparable: M = 16 then, 8 now");
}

TEST_CASE("products with as many rows are compared with each other") {
  VerifyReport earlier = ExampleReport(1);
  std::vector<InputFigures>& inputs = earlier.modules[0].gemm->inputs;
  inputs.push_back(ExampleInput("gaussian", {.kernel_db = 70, .end_to_end_db = 60}));
  inputs[1].rows = 64;
  VerifyReport now = earlier;
  CHECK(Compare(earlier, now, 0).state == LevelState::kPassed);
  CHECK(now.regression.notes.empty());
  now.modules[0].gemm->inputs[1].kernel.sqnr_db = 60;
  CHECK(OnlyProblem(Compare(earlier, now)) ==
        "the kernel SQNR on gaussian activations (M = 64) fell from 70.0 dB to 60.0 dB (tolerance "
        "0.5 dB)");
}

TEST_CASE("an agreement of other implementations is not compared") {
  CHECK(AfterChange([](ModuleVerification& module) {
          module.gemm->agreement_db = 1;
          module.gemm->second_implementation = "another";
        }).state == LevelState::kPassed);
}

TEST_CASE("a module that is not in both samples is not compared") {
  const VerifyReport earlier = ExampleReport(2);
  VerifyReport now = earlier;
  now.modules[1].looked_at = false;
  now.modules[1].levels = {};
  now.modules[1].gemm.reset();
  const LevelResult& result = Compare(earlier, now);
  CHECK(result.state == LevelState::kPassed);
  REQUIRE(result.notes.size() == 1);
  CHECK(result.notes[0].message == "modules that are not in both samples and were not compared: 1");
}

TEST_CASE("reports that share no figure prove nothing") {
  VerifyReport earlier = ExampleReport(0);
  VerifyReport now = ExampleReport(1);
  CHECK(Compare(earlier, now).state == LevelState::kNotRun);
  now = ExampleReport(0);
  CHECK(Compare(earlier, now).state == LevelState::kNotRun);
}

TEST_CASE("figures of quality that are gone fail, a second implementation that is gone is noted") {
  VerifyReport earlier = ExampleReport(1);
  earlier.modules[0].quality =
      QualityFigures{.weight_sqnr_db = 20, .output_sqnr_db = 21, .below_peers_db = std::nullopt};
  earlier.modules[0].gemm->agreement_db = 55;
  VerifyReport now = ExampleReport(1);
  now.modules[0].quality.reset();
  now.modules[0].gemm->agreement_db.reset();
  const LevelResult& result = Compare(earlier, now);
  CHECK(result.state == LevelState::kFailed);
  REQUIRE(result.problems.size() == 2);
  CHECK(result.problems[0].message == "the weight SQNR was measured then, but not now");
  REQUIRE(result.notes.size() == 1);
  CHECK(result.notes[0].message == "a second implementation agreed then, but there is none now");
}

}  // namespace
}  // namespace prepack::testing
