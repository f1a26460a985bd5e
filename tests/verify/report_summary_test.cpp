#include "prepack/verify/report/summary.h"

#include <string>
#include <vector>

#include "catch.h"
#include "example_report.h"
#include "text.h"

namespace prepack::testing {
namespace {

std::vector<std::string> Titles(bool with_quality) {
  std::vector<std::string> titles;
  for (const ReportColumn& column : ModuleColumns(with_quality)) titles.push_back(column.title);
  return titles;
}

std::string Name(const ModuleVerification* module) {
  return module->module;
}

TEST_CASE("a figure that is no number is a word") {
  CHECK(DecibelText(55.55) == "55.5");
  CHECK(DecibelText(kInfinity) == "inf");
  CHECK(DecibelText(-kInfinity) == "-inf");
  CHECK(DecibelText(kNan) == "undefined");
  CHECK(DecibelText(std::nullopt) == "-");
}

TEST_CASE("a row has the lowest kernel figure, and the rest of Gaussian activations") {
  using Cells = std::vector<std::string>;
  CHECK(Titles(false) == Cells{"module", "layout", "exact", "scale diff", "kernel dB",
                               "end-to-end dB", "worst channel", "GEMM"});
  ModuleVerification module = ExampleModule("m");
  module.gemm->inputs.insert(module.gemm->inputs.begin(),
                             ExampleInput("one-hot", {.kernel_db = 53, .end_to_end_db = 44}));
  module.gemm->inputs[0].kernel.worst_channel = 11;
  CHECK(ModuleCells(module, false) == Cells{"m", "vllm-cpu/wna16", "yes", "0.0e+00", "53.0", "52.2",
                                            "n 7: 51.5", "brg_matmul:avx2, x f32 (bf16 values)"});
  module.gemm->inputs.push_back(ExampleInput("gaussian", {.kernel_db = 56, .end_to_end_db = 51}));
  module.gemm->inputs.back().rows = 64;
  CHECK(ModuleCells(module, false)[5] == "51.0");
  module.exact = false;
  module.gemm->inputs[1].kernel.sqnr_db = kNan;
  CHECK(ModuleCells(module, false)[2] == "NO");
  CHECK(ModuleCells(module, false)[4] == "undefined");
}

TEST_CASE("a module that was not looked at says so") {
  using Cells = std::vector<std::string>;
  const VerifyReport report = FullReport();
  CHECK(HasQuality(report));
  CHECK_FALSE(HasQuality(ExampleReport()));
  CHECK(ModuleCells(report.modules[2], true) ==
        Cells{"c", "vllm-cpu/wna16", "-", "-", "-", "-", "-", "-", "-", "not in the sample"});
  CHECK(ModuleCells(report.modules[0], true)[7] == "20.5");
  CHECK(Titles(true)[7] == "weight dB");
}

TEST_CASE("levels are shown when somebody asked for them, with what was looked at") {
  std::vector<ShownLevel> shown = ShownLevels(ExampleReport());
  REQUIRE(shown.size() == 3);
  CHECK(shown[2].name == "gemm");
  CHECK(shown[2].sentence ==
        "onednn 3.13.2: 2 modules, gaussian activations; closest to the bar: kernel 55.5 dB (at "
        "least 48.0), "
        "end to end 52.2 dB (at least 40.0)");
  const VerifyReport full = FullReport();
  shown = ShownLevels(full);
  REQUIRE(shown.size() == 5);
  CHECK(shown[3].name == "quality");
  CHECK(shown[3].sentence == "no such model");
  CHECK(shown[4].name == "regression");
  CHECK(shown[4].sentence == "against earlier.json");
  CHECK(Contains(shown[2].sentence, "kernel undefined dB (at least 48.0)"));
  VerifyReport compared = ExampleReport();
  compared.level(Level::kQuality).state = LevelState::kPassed;
  compared.baseline = "float";
  CHECK(ShownLevels(compared)[3].sentence == "weights and products against float");
}

TEST_CASE("the verdict names the levels that decided") {
  CHECK(VerdictSentence(ExampleReport()) == "passed");
  CHECK(VerdictSentence(FullReport()) == "failed: integrity, gemm");
  VerifyReport report = ExampleReport();
  report.level(Level::kExactness) = {.state = LevelState::kNotRun, .reason = "no source"};
  report.against = "r.json";
  report.regression = {.state = LevelState::kNotRun, .asked = true};
  CHECK(VerdictSentence(report) == "not run: exactness, regression");
}

TEST_CASE("a sample says what it is a sample of") {
  CHECK(SampleSentence(ExampleReport()).empty());
  CHECK(SampleSentence(FullReport()) == "checked 2 of 3 modules (--sample 0.5, seed 7)");
}

TEST_CASE("modules are ranked by how far their kernel is above its bar") {
  VerifyReport report = ExampleReport(4);
  report.modules[0].gemm->inputs[0].kernel.sqnr_db = 50;
  report.modules[1].gemm->inputs[0].kernel.sqnr_db = 49;
  report.modules[1].gemm->inputs[0].kernel_bar_db = 45;
  report.modules[2].gemm->inputs[0].kernel.sqnr_db = kNan;
  report.modules[3].gemm.reset();
  CHECK(KernelMargin(report.modules[0]) == 2.0);
  CHECK(KernelMargin(report.modules[2]) == -kInfinity);
  CHECK_FALSE(KernelMargin(report.modules[3]).has_value());
  const std::vector<const ModuleVerification*> worst = WorstModules(report, 10);
  REQUIRE(worst.size() == 3);
  CHECK(Name(worst[0]) + Name(worst[1]) + Name(worst[2]) == "cab");
  CHECK(WorstModules(report, 1).size() == 1);
}

TEST_CASE("modules with problems are those that failed or are named by a problem") {
  VerifyReport report = ExampleReport(4);
  report.modules[0].state(Level::kGemm) = LevelState::kFailed;
  report.level(Level::kExactness).problems.push_back({"b", "module b", "not looked at"});
  report.regression.FailModule("d", "fell");
  report.level(Level::kIntegrity).Fail("config.json", "missing");
  CHECK(ModulesWithProblems(report) == std::set<std::string_view>{"a", "b", "d"});
}

TEST_CASE("a problem does not say its place twice") {
  CHECK(ProblemText({"", "file x", "missing"}) == "file x: missing");
  CHECK(ProblemText({"", "file x", "file x: missing"}) == "file x: missing");
  CHECK(ProblemText({"", "", "missing"}) == "missing");
}

TEST_CASE("what is said of several modules in the same words is said once") {
  const std::vector<Problem> folded = Folded({{"a", "module a", "wrong"},
                                              {"", "file", "wrong"},
                                              {"b", "module b", "wrong"},
                                              {"c", "module c", "other"},
                                              {"d", "module d", "wrong"}});
  REQUIRE(folded.size() == 3);
  CHECK(ProblemText(folded[0]) == "module a and 2 more: wrong");
  CHECK(ProblemText(folded[1]) == "file: wrong");
  CHECK(ProblemText(folded[2]) == "module c: other");
}

}  // namespace
}  // namespace prepack::testing
