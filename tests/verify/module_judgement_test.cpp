#include "prepack/verify/judgement.h"

#include <limits>
#include <string>

#include "catch.h"

namespace prepack::testing {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

InputFigures Input(const char* name, uint64_t rows, double kernel, double channel,
                   double end_to_end) {
  InputFigures input;
  input.input = name;
  input.rows = rows;
  input.kernel = {.sqnr_db = kernel,
                  .cosine = 1,
                  .max_abs_error = 0.1,
                  .worst_channel = 7,
                  .worst_channel_sqnr_db = channel};
  input.end_to_end.sqnr_db = end_to_end;
  return input;
}

ModuleVerification GoodModule() {
  ModuleVerification module;
  module.module = "m";
  module.gemm =
      GemmFigures{.implementation = "first",
                  .activations = "bf16",
                  .inputs = {Input("gaussian", 1, 55, 30, 51), Input("gaussian", 64, 55, 52, 51),
                             Input("outliers", 8, 55, 50, 22), Input("one-hot", 16, 55, 50, 50)},
                  .second_implementation = "second",
                  .agreement_db = 55};
  return module;
}

LevelResult Judged(ModuleVerification& module, const ModuleBars& bars) {
  LevelResult result{.state = LevelState::kPassed};
  JudgeProducts(bars, module, result);
  return result;
}

QualityFigures Quality(double weights) {
  return {.weight_sqnr_db = weights, .output_sqnr_db = 20, .below_peers_db = {}};
}

constexpr ModuleBars kBars{.kernel_db = 48, .end_to_end_db = 40, .recorded_db = {}};

// The one problem, which fails the module.
std::string ProblemOf(ModuleVerification module, const ModuleBars& bars = kBars) {
  const LevelResult result = Judged(module, bars);
  CHECK(module.state(Level::kGemm) == LevelState::kFailed);
  CHECK(result.state == LevelState::kFailed);
  REQUIRE(result.problems.size() == 1);
  CHECK(result.problems[0].module == "m");
  return result.problems[0].message;
}

TEST_CASE(
    "a good module passes: single rows tell nothing of channels, outliers nothing end to end") {
  ModuleVerification module = GoodModule();
  CHECK(Judged(module, kBars).problems.empty());
  CHECK(module.state(Level::kGemm) == LevelState::kPassed);
  CHECK(module.gemm->inputs[1].end_to_end_bar_db == 40);
  CHECK_FALSE(module.gemm->inputs[2].end_to_end_bar_db);
}

TEST_CASE("every kind of figure has one problem, which speaks of the worst case") {
  ModuleVerification module = GoodModule();
  module.gemm->inputs[1].kernel.sqnr_db = 40;
  module.gemm->inputs[2].kernel.sqnr_db = 30;
  CHECK(ProblemOf(module) ==
        "the kernel SQNR is too low on outliers activations, M = 8 (found 30.0 dB, expected at "
        "least 48.0 dB)");
  module = GoodModule();
  module.gemm->inputs[1].kernel.sqnr_db = 46.2;
  CHECK(
      ProblemOf(module).find("a kernel that truncates to bf16 instead of rounding reaches 46 dB") !=
      std::string::npos);
  module = GoodModule();
  module.gemm->inputs[2].kernel.worst_channel_sqnr_db = 47;
  CHECK(ProblemOf(module) ==
        "the kernel SQNR of output channel 7 is too low on outliers activations, M = 8 (found 47.0 "
        "dB, expected at least 48.0 dB)");
  module = GoodModule();
  module.gemm->inputs[1].end_to_end.sqnr_db = 39;
  CHECK(ProblemOf(module).starts_with("the end-to-end SQNR is too low on gaussian activations"));
  module = GoodModule();
  module.gemm->agreement_db = 20;
  CHECK(ProblemOf(module) ==
        "two implementations differ: first and second (found 20.0 dB, expected at least 48.0 dB)");
}

TEST_CASE("what is rounded twice may fall lower, and is judged by many rows only") {
  ModuleBars bars = kBars;
  bars.rounded_twice = true;
  ModuleVerification module = GoodModule();
  module.gemm->inputs[1].kernel.worst_channel_sqnr_db = 46;
  module.gemm->inputs[2].kernel.worst_channel_sqnr_db = 43;
  CHECK(Judged(module, bars).problems.empty());
  module.gemm->inputs[1].kernel.worst_channel_sqnr_db = 44;
  CHECK(ProblemOf(module, bars).find("expected at least 45.0 dB") != std::string::npos);
}

TEST_CASE("one-hot activations that prove nothing do not count") {
  ModuleVerification missed = GoodModule();
  missed.gemm->inputs[3].kernel = {.sqnr_db = kNothing};  // zeros where zeros should be
  CHECK(Judged(missed, kBars).problems.empty());
  ModuleVerification cancelled = GoodModule();
  cancelled.gemm->inputs[3].kernel.sqnr_db = 20;
  ModuleBars bars = kBars;
  bars.cancels = true;
  CHECK(Judged(cancelled, bars).problems.empty());
  CHECK(ProblemOf(cancelled).find("one-hot") != std::string::npos);
}

TEST_CASE("a module whose figures prove nothing is not run, neither passed nor failed") {
  ModuleVerification module = GoodModule();
  for (InputFigures& input : module.gemm->inputs) {
    input.kernel.sqnr_db = kNothing;
    input.end_to_end.sqnr_db = kNothing;
  }
  const LevelResult result = Judged(module, kBars);
  CHECK(module.state(Level::kGemm) == LevelState::kNotRun);
  CHECK(result.state == LevelState::kPassed);  // the caller concludes
  CHECK(result.problems.size() == 2);
}

TEST_CASE("recorded activations have the bar that the user gives") {
  ModuleVerification module = GoodModule();
  module.gemm->inputs.push_back(Input("recorded", 20, 55, 52, 30));
  CHECK(Judged(module, kBars).problems.empty());
  ModuleBars bars = kBars;
  bars.recorded_db = 35;
  CHECK(ProblemOf(module, bars).starts_with("the end-to-end SQNR is too low on recorded"));
}

TEST_CASE(
    "a form that oneDNN does not want is a note, unless the folder was made for this machine") {
  const Status form = Unsupported("oneDNN", "another form");
  ModuleVerification module = GoodModule();
  module.state(Level::kGemm) = LevelState::kPassed;
  ModuleRecord record;
  LevelResult result{.state = LevelState::kPassed};
  JudgeForm(form, record, module, result);
  CHECK(result.notes.size() == 1);
  CHECK(module.state(Level::kGemm) == LevelState::kPassed);
  record.onednn = OneDnnOrigin{};
  JudgeForm(form, record, module, result);
  CHECK(result.problems.size() == 1);
  CHECK(module.state(Level::kGemm) == LevelState::kNotRun);
  JudgeForm(Status(), record, module, result);
  CHECK(result.problems.size() == 1);
}

TEST_CASE("distance from the unquantized model is noted, and nothing is no distance") {
  ModuleVerification module;
  module.module = "m";
  LevelResult result{.state = LevelState::kPassed};
  module.quality = Quality(20);
  JudgeQuality("", module, result);
  CHECK(module.state(Level::kQuality) == LevelState::kPassed);
  CHECK(result.notes.empty());
  module.quality = Quality(-7);
  JudgeQuality("", module, result);
  CHECK(module.state(Level::kQuality) == LevelState::kPassed);
  REQUIRE(result.notes.size() == 1);
  CHECK(result.notes[0].message.find("found -7.0 dB") != std::string::npos);
  module.state(Level::kQuality) = LevelState::kNotRun;
  module.quality = Quality(kNothing);
  JudgeQuality("", module, result);
  module.quality.reset();
  JudgeQuality("the baseline has no weight for this module", module, result);
  CHECK(module.state(Level::kQuality) == LevelState::kNotRun);
  REQUIRE(result.problems.size() == 2);
  CHECK(result.problems[1].message == "the baseline has no weight for this module");
}

TEST_CASE("a module far below its peers is noted") {
  Manifest manifest;
  std::map<std::string, ModuleVerification> modules;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".mlp.up_proj";
    manifest.modules[name] = {};
    modules[name].module = name;
    modules[name].quality = Quality(20 + 0.1 * layer);
  }
  modules.at("model.layers.3.mlp.up_proj").quality->weight_sqnr_db = 12;
  LevelResult result;
  NoteOutliers(manifest, modules, result);
  REQUIRE(result.notes.size() == 1);
  CHECK(result.notes[0].module == "model.layers.3.mlp.up_proj");
  CHECK(result.notes[0].message.find("its weight SQNR of 12.0 dB is 8.1 dB below") !=
        std::string::npos);
  CHECK(modules.at("model.layers.3.mlp.up_proj").quality->below_peers_db.has_value());
}

}  // namespace
}  // namespace prepack::testing
