#include <limits>

#include "catch.h"
#include "check/baseline.h"
#include "check/check_run.h"

namespace prepack::testing {
namespace {

TEST_CASE("The SQNR against the baseline is that of the rounding") {
  TestCheckpoint baseline;
  const TestCheckpoint checkpoint = WideExample(1, &baseline);
  const CheckReport report = RunCheck(checkpoint, &baseline);
  RequireSound(report);
  // Steps of rms 2.5, rounding of rms 1/√12: 18.8 dB, a little less by clamping.
  REQUIRE(report.modules[0].sqnr_db.has_value());
  CHECK(*report.modules[0].sqnr_db > 17.5);
  CHECK(*report.modules[0].sqnr_db < 19.5);
}

TEST_CASE("A module that falls behind its peers is an outlier") {
  TestCheckpoint baseline;
  const TestCheckpoint checkpoint = WideExample(6, &baseline);
  RequireSound(RunCheck(checkpoint, &baseline));
  auto& weights = baseline.At(WideModule(4) + ".weight").bytes;
  for (size_t i = 0; i < weights.size() / 2; i += 16) PutBF16(weights, i, 0);
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-outlier", "layers.4.mlp.up_proj: SQNR 1",
              CheckVerdict::kWarnings);
}

TEST_CASE("Another model, another shape and a missing weight are reported") {
  TestCheckpoint baseline;
  const TestCheckpoint checkpoint = WideExample(1, &baseline);
  TestTensor& weight = baseline.At(WideModule(0) + ".weight");
  std::ranges::reverse(weight.bytes);
  for (size_t i = 0; i < weight.bytes.size(); i += 2)
    std::swap(weight.bytes[i], weight.bytes[i + 1]);
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-unrelated", "dB", CheckVerdict::kWarnings);
  weight.shape = {kWideK, kWideN};
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-shape", "[64, 128], but [128, 64]",
              CheckVerdict::kBadValues);
  weight.name = "other.weight";
  RequireOnly(RunCheck(checkpoint, &baseline), "baseline-missing", "no weight of this module",
              CheckVerdict::kWarnings);
}

TEST_CASE("Outliers are told from the spread of their peers") {
  const auto mark = [](std::vector<double> values) {
    std::vector<PeerFigure> figures;
    for (const double value : values)
      figures.push_back({.peers = "x", .sqnr_db = value, .outlier_below_db = {}});
    MarkOutliers(figures);
    std::vector<size_t> outliers;
    for (size_t i = 0; i < figures.size(); ++i) {
      if (figures[i].outlier_below_db) outliers.push_back(i);
    }
    return outliers;
  };
  CHECK(mark({18, 18.1, 18.2, 14, 18}) == std::vector<size_t>{3});
  CHECK(mark({18, 18.1, 18.2, 15.5, 18}).empty());  // below 3 dB
  CHECK(mark({10, 14, 18, 22, 26}).empty());        // they differ by nature
  CHECK(mark({18, 18, 10}).empty());                // too few
  CHECK(mark({18, 18, 18, 18, 30}).empty());        // better is no problem
}

TEST_CASE("Headers exclude a baseline") {
  Progress progress;
  CheckError(
      Check({.source = "a", .baseline = "b", .headers_only = true, .jobs = 1}, progress).status(),
      ErrorKind::kUsage, "--headers");
}

}  // namespace
}  // namespace prepack::testing
