// From figures to a choice, on figures that were measured once.

#include <string>
#include <vector>

#include "catch.h"
#include "prepack/convert/scheme_choice.h"
#include "prepack/tune/report.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

Timing Milliseconds(double median) {
  return {.seconds = median / 1e3,
          .low = median * 0.99 / 1e3,
          .high = median * 1.01 / 1e3,
          .samples = 11};
}

TuneCandidate MeasuredCandidate(std::string target, std::string scheme, uint64_t bytes, double db,
                                double small, double large) {
  TuneCandidate candidate;
  candidate.target = std::move(target);
  candidate.scheme = std::move(scheme);
  candidate.layouts = {candidate.target + "/x"};
  candidate.implementation = "some kernel";
  candidate.bytes = bytes;
  candidate.sqnr_db = db;
  candidate.steps = {{.rows = 1, .timing = Milliseconds(small)},
                     {.rows = 512, .timing = Milliseconds(large)}};
  return candidate;
}

TunedKind KindNamed(std::string role, size_t modules, std::vector<TuneCandidate> candidates) {
  TunedKind kind;
  kind.pattern = "^" + role + "$";
  kind.role = std::move(role);
  kind.bits = 4;
  kind.shapes = {{.n = 4096, .k = 4096, .scheme = "w4a16", .modules = modules, .units = modules}};
  kind.candidates = std::move(candidates);
  return kind;
}

// w4a8 decodes and prefills faster, and more so in `down`; w4a16 is more exact.
TuneReport TwoKinds() {
  TuneReport report;
  report.source = "model";
  report.cpu = "a CPU";
  report.threads = 2;
  report.batches = {1, 512};
  report.runtimes = {{.target = "onednn", .name = "onednn 3.13.2"}};
  report.kinds = {KindNamed("up", 8,
                            {MeasuredCandidate("onednn", "w4a16", 100, 51, 10, 400),
                             MeasuredCandidate("onednn", "w4a8", 120, 41, 9, 300)}),
                  KindNamed("down", 8,
                            {MeasuredCandidate("onednn", "w4a16", 100, 51, 10, 400),
                             MeasuredCandidate("onednn", "w4a8", 90, 41, 4, 900)})};
  report.kinds[0].candidates[0].as_stored = true;
  report.kinds[1].candidates[0].as_stored = true;
  return report;
}

TuneReport DecidedFor(TuneGoal goal, std::optional<double> min_sqnr = {}) {
  TuneReport report = TwoKinds();
  report.goal = goal;
  report.min_sqnr_db = min_sqnr;
  Decide(report);
  return report;
}

using Choice = std::vector<size_t>;

TEST_CASE("each goal has its own choice") {
  CHECK(DecidedFor(TuneGoal::kLatency).choice->total.candidates == Choice{1, 1});
  CHECK(DecidedFor(TuneGoal::kThroughput).choice->total.candidates == Choice{1, 0});
  CHECK(DecidedFor(TuneGoal::kAccuracy).choice->total.candidates == Choice{0, 0});
  CHECK(DecidedFor(TuneGoal::kSize).choice->total.candidates == Choice{0, 1});
}

TEST_CASE("totals are sums of kinds, and their noise is the mean") {
  const TuneReport report = DecidedFor(TuneGoal::kLatency);
  REQUIRE(report.totals.size() == 2);
  CHECK(report.totals[0].label == "w4a16");
  CHECK(report.totals[0].bytes == 200);
  CHECK(report.totals[0].sqnr_db == Approx(51));
  CHECK(report.totals[0].StepOf(1)->timing->seconds == Approx(0.020));
  CHECK(RowsPerSecond(*report.totals[1].StepOf(1)) == Approx(1 / 0.013));
  CHECK(RowsPerSecond(*report.totals[1].StepOf(512)) == Approx(512 / 1.2));
  // Half of the modules with 41 dB, half with 51: 10^-4.1 and 10^-5.1 on the average.
  const TuneReport mixed = DecidedFor(TuneGoal::kThroughput);
  CHECK(mixed.choice->total.label == "w4a16+w4a8");
  CHECK(*mixed.choice->total.sqnr_db == Approx(43.597).epsilon(1e-4));
}

TEST_CASE("a bar on the noise buys the fast option where it saves most") {
  const TuneReport report = DecidedFor(TuneGoal::kLatency, 43);
  REQUIRE(report.choice.has_value());
  CHECK(report.choice->total.candidates == Choice{0, 1});
  CHECK(report.choice->reason ==
        "onednn w4a16+w4a8 is the fastest at the smallest batch of what was measured and reaches "
        "43 dB: 190 B, 71.4 tokens/s at batch 1, 43.6 dB; onednn w4a8 takes 0.93 of its time and "
        "210 B at 41.0 dB");
  CHECK(report.choice->certain);
}

TEST_CASE("a bar that nothing reaches leaves no choice") {
  const TuneReport report = DecidedFor(TuneGoal::kLatency, 60);
  CHECK_FALSE(report.choice.has_value());
  CHECK(report.unreachable);
  CHECK(report.why_no_choice == "no choice of what was measured reaches 60 dB");
}

TEST_CASE("what was not measured is never recommended") {
  TuneReport report = TwoKinds();
  TuneStep& step = report.kinds[0].candidates[1].steps[0];
  step.timing.reset();
  step.why_not = "its kernel needs AVX-512";
  Decide(report);
  CHECK(report.choice->total.candidates == Choice{0, 1});
  CHECK_FALSE(report.totals[1].StepOf(1)->timing.has_value());
  CHECK(report.totals[1].StepOf(1)->why_not == "its kernel needs AVX-512");
}

TEST_CASE("a target that was not measured as a whole is not recommended") {
  TuneReport report = TwoKinds();
  for (TunedKind& kind : report.kinds) {
    TuneCandidate other = MeasuredCandidate("vllm-cpu", "w4a8", 80, 41, 1, 1);
    if (kind.role == "down") other.steps[0].timing.reset();
    kind.candidates.push_back(std::move(other));
  }
  report.runtimes.push_back({.target = "vllm-cpu", .name = "vllm 0.32.0"});
  Decide(report);
  CHECK(report.choice->total.target == "onednn");

  report = TwoKinds();
  for (TunedKind& kind : report.kinds) {
    kind.candidates.push_back(MeasuredCandidate("vllm-cpu", "w4a8", 80, 41, 1, 1));
  }
  report.runtimes.push_back({.target = "vllm-cpu", .name = "vllm 0.32.0"});
  Decide(report);
  CHECK(report.choice->total.target == "vllm-cpu");
}

TEST_CASE("if no target could be measured, the reasons of all are said") {
  TuneReport report = TwoKinds();
  for (TunedKind& kind : report.kinds) {
    for (TuneCandidate& candidate : kind.candidates) {
      for (TuneStep& step : candidate.steps) step.timing.reset();
    }
  }
  report.runtimes = {{.target = "onednn", .why_not = "built without it"}};
  Decide(report);
  CHECK_FALSE(report.choice.has_value());
  CHECK_FALSE(report.unreachable);
  CHECK(report.why_no_choice ==
        "no target has a kernel that was measured for every kind of module; onednn: built without "
        "it");
  CHECK(SchemeFileText(report).empty());
}

TEST_CASE("figures that overlap are said to be too close") {
  TuneReport report = TwoKinds();
  for (TunedKind& kind : report.kinds) {
    kind.candidates[1].steps[0].timing = Timing{.seconds = 9e-3, .low = 5e-3, .high = 14e-3};
  }
  Decide(report);
  CHECK_FALSE(report.choice->certain);
  CHECK(report.choice->reason.find("onednn w4a16 takes as long within the spread") !=
        std::string::npos);
}

TEST_CASE("the file of schemes holds the choice, and comments that say where it comes from") {
  const TuneReport report = DecidedFor(TuneGoal::kThroughput);
  const std::string text = SchemeFileText(report);
  CHECK(text.find("# Chosen by `prepack tune --for throughput` for --target onednn") == 0);
  CHECK(text.find("# batch 512: 731 tokens/s of all linear layers\n") != std::string::npos);
  CHECK(text.ends_with(
      "\n\n"
      "# 8 modules, onednn/x, 120 B, 41.0 dB, batch 1: 9.00 ms, batch 512: 300.00 ms\n"
      "^up$=w4a8\n"
      "# 8 modules, onednn/x, 100 B, 51.0 dB, batch 1: 10.00 ms, batch 512: 400.00 ms\n"
      "^down$=w4a16\n"));
}

TEST_CASE("the page shows every candidate, and marks those that were chosen") {
  TuneReport report = DecidedFor(TuneGoal::kThroughput);
  report.format = "<gptq>";
  report.kinds[0].candidates[1].sample = {{"layers.0.up", 41}, {"layers.9.up", 40}};
  const std::string html = TuneHtml(report);
  CHECK(html.find("prepack tune: <span class=\"good\">onednn w4a16+w4a8</span>") !=
        std::string::npos);
  CHECK(html.find("&lt;gptq&gt;") != std::string::npos);
  // Two kinds of two candidates, at two batches; the modules that were looked at.
  CHECK(html.find("<title>up w4a8: 0.0375 seconds, 41 dB</title>") != std::string::npos);
  CHECK(html.find("r=\"6\"><title>down w4a16: 0.05 seconds, 51 dB</title>") != std::string::npos);
  CHECK(html.find("r=\"3\"><title>down w4a8: 0.113 seconds, 41 dB</title>") != std::string::npos);
  CHECK(html.find("<title>layers.9.up: 40 dB</title>") != std::string::npos);

  report.choice.reset();
  report.why_no_choice = "no kernel ran";
  CHECK(TuneHtml(report).find("no kernel ran") != std::string::npos);
}

TEST_CASE("goals have names") {
  for (const char* name : {"latency", "throughput", "accuracy", "size"}) {
    const auto goal = GoalFromName(name);
    REQUIRE(goal.has_value());
    CHECK(GoalName(*goal) == name);
  }
  CHECK_FALSE(GoalFromName("speed").has_value());
}

}  // namespace
}  // namespace prepack::testing
