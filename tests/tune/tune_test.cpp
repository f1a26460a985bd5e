#include "prepack/tune/tune.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.h"
#include "prepack/base/progress.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/gemm/engine.h"
#include "prepack/io/scratch_folder.h"
#include "prepack/tune/kernel_times.h"
#include "status_matchers.h"
#include "tune_example.h"

namespace prepack::testing {
namespace {

TuneMachine MachineWith(KernelRuntime& runtime, const std::string& target = "onednn") {
  TuneMachine machine;
  machine.runtimes = {{.target = target, .runtime = &runtime}};
  machine.features = EveryFeature();
  machine.cpus = {0, 1};
  machine.cold_bytes = 1000;
  machine.bandwidth = 1e10;
  return machine;
}

Result<TuneReport> TuneWith(KernelRuntime& runtime, const TuneOptions& options) {
  Progress progress;
  return TuneOn(MachineWith(runtime, options.targets.front()), options, progress);
}

const TunedKind& KindOf(const TuneReport& report, std::string_view end) {
  return *std::ranges::find_if(report.kinds,
                               [&](const TunedKind& kind) { return kind.role.ends_with(end); });
}

TEST_CASE("every layout of the target is a candidate for every kind, with all figures") {
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 1e-3}});
  const TuneReport report = Value(TuneWith(runtime, TuneFixture("ct-w4a16-g128-sym")));
  CHECK(report.format == "compressed-tensors");
  CHECK(report.threads == 2);
  CHECK(report.kinds.size() == 7);
  CHECK(report.left_out.empty());
  for (const TunedKind& kind : report.kinds) {
    CAPTURE(kind.role);
    REQUIRE(kind.candidates.size() == 3);
    const TuneCandidate& wide = kind.candidates[0];
    const TuneCandidate& narrow = kind.candidates[1];
    CHECK(wide.scheme == "w4a16");
    CHECK(wide.as_stored);
    CHECK(wide.layouts == std::vector<std::string>{"onednn/w4a16"});
    CHECK(wide.implementation == "said");
    CHECK(wide.StepOf(8)->timing->seconds == Approx(16e-3));
    CHECK(narrow.scheme == "w4a8");
    CHECK_FALSE(narrow.as_stored);
    // Rounding to bf16 leaves some 51 dB, activations of 8 bits some 42.
    CHECK(*wide.sqnr_db == Approx(51.3).margin(0.5));
    CHECK(*narrow.sqnr_db == Approx(42.5).margin(1));
    CHECK(*wide.worst_db <= *wide.sqnr_db);
    CHECK(wide.bytes > 0);
    const TuneCandidate& plain = kind.candidates[2];
    CHECK(plain.scheme == "bf16");
    CHECK_FALSE(plain.as_stored);
    CHECK(plain.layouts == std::vector<std::string>{"plain/bf16"});
    CHECK(*plain.sqnr_db == Approx(51.3).margin(0.5));
    CHECK(plain.bytes > 3 * wide.bytes);
    CHECK_FALSE(plain.StepOf(1)->timing.has_value());
  }
  REQUIRE(report.choice.has_value());
  CHECK(report.choice->total.label == "w4a8");
  CHECK(report.choice->total.StepOf(1)->timing->seconds == Approx(7e-3));
  CHECK(runtime.cold == 1000);
}

TEST_CASE("a shape that several kinds have is measured once") {
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 1e-3}});
  RequireOk(TuneWith(runtime, TuneFixture("ct-w4a16-g128-sym")).status());
  // 384x1536; 1536x384 twice; 384x384 twice; 128x384 twice; by three layouts and two batches.
  CHECK(runtime.prepared.size() == 4 * 3 * 2);
  using Prepared = decltype(runtime.prepared)::value_type;
  for (const Prepared& one : runtime.prepared) CHECK(runtime.prepared.count(one) == 1);
}

TEST_CASE("the recommendation obeys the goal and the bar") {
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 1e-3}});
  TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  options.goal = TuneGoal::kAccuracy;
  CHECK(Value(TuneWith(runtime, options)).choice->total.label == "w4a16");
  options.goal = TuneGoal::kLatency;
  options.min_sqnr_db = 44;
  const TuneReport mixed = Value(TuneWith(runtime, options));
  REQUIRE(mixed.choice.has_value());
  CHECK(mixed.choice->total.label == "w4a16+w4a8");
  CHECK(*mixed.choice->total.sqnr_db >= 44);
  options.min_sqnr_db = 100;
  CHECK(Value(TuneWith(runtime, options)).unreachable);
}

TEST_CASE("an op that cannot run leaves its reason, and no figure") {
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}});
  const TuneReport report = Value(TuneWith(runtime, TuneFixture("ct-w4a16-g128-sym")));
  const TuneCandidate& missing = report.kinds[0].candidates[1];
  CHECK_FALSE(missing.StepOf(1)->timing.has_value());
  CHECK(missing.StepOf(1)->why_not == "the op is missing");
  CHECK(missing.sqnr_db.has_value());
  CHECK(report.choice->total.label == "w4a16");
}

TEST_CASE("a kernel that the CPU cannot run is not run") {
  SaidRuntime runtime({{"vllm-cpu/wna16", 2e-3}, {"vllm-cpu/int4-w4a8", 1e-3}});
  TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  options.targets = {"vllm-cpu"};
  TuneMachine machine = MachineWith(runtime, "vllm-cpu");
  machine.features = {CpuFeature::kAvx2};
  Progress progress;
  const TuneReport report = Value(TuneOn(machine, options, progress));
  for (const auto& prepared : runtime.prepared) CHECK(std::get<0>(prepared) == "plain/bf16");
  CHECK(report.kinds[0].candidates[0].StepOf(1)->why_not == "its kernel needs AVX-512 (this CPU)");
  CHECK_FALSE(report.choice.has_value());
  CHECK(Value(TuneWith(runtime, options)).choice->total.label == "w4a8");
}

TEST_CASE("a target without a runtime is not measured, and says why") {
  TuneMachine machine;
  machine.runtimes = {{.target = "onednn", .runtime = nullptr, .why_not = "built without oneDNN"}};
  machine.features = EveryFeature();
  machine.cpus = {0};
  Progress progress;
  const TuneReport report = Value(TuneOn(machine, TuneFixture("ct-w4a16-g128-sym"), progress));
  CHECK_FALSE(report.choice.has_value());
  CHECK(report.why_no_choice.find("onednn: built without oneDNN") != std::string::npos);
  CHECK(report.kinds[0].candidates[0].StepOf(1)->why_not == "built without oneDNN");
}

TEST_CASE("a reference implementation is not run for seconds") {
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 0.3}});
  runtime.references = {"onednn/w4a8"};
  const TuneReport report = Value(TuneWith(runtime, TuneFixture("ct-w4a16-g128-sym")));
  const TuneCandidate& slow = report.kinds[0].candidates[1];
  CHECK(slow.is_reference);
  CHECK(slow.StepOf(1)->timing->seconds == Approx(0.3));
  CHECK_FALSE(slow.StepOf(8)->timing.has_value());
  CHECK(slow.StepOf(8)->why_not.find("only a reference implementation (said)") !=
        std::string::npos);
}

TEST_CASE("a runtime that fuses is measured with what it fuses, another module by module") {
  using Prepared = std::tuple<std::string, uint64_t, uint64_t, uint64_t>;
  SaidRuntime vllm({{"vllm-cpu/wna16", 3e-3}, {"vllm-cpu/int4-w4a8", 4e-3}});
  SaidRuntime onednn({{"onednn/w4a16", 2e-3}});
  TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  options.targets = {"vllm-cpu", "onednn"};
  options.batches = {1};
  TuneMachine machine = MachineWith(vllm, "vllm-cpu");
  machine.runtimes.push_back({.target = "onednn", .runtime = &onednn});
  Progress progress;
  const TuneReport report = Value(TuneOn(machine, options, progress));
  CHECK(report.kinds.size() == 4);
  CHECK(report.modules() == 7);
  CHECK(vllm.prepared.contains(Prepared{"vllm-cpu/wna16", 384 + 128 + 128, 384, 1}));
  CHECK(vllm.prepared.contains(Prepared{"vllm-cpu/wna16", 2 * 1536, 384, 1}));
  CHECK_FALSE(vllm.prepared.contains(Prepared{"vllm-cpu/wna16", 1536, 384, 1}));
  CHECK(onednn.prepared.count(Prepared{"onednn/w4a16", 1536, 384, 1}) == 1);
  const TunedKind& qkv = KindOf(report, "qkv_proj");
  REQUIRE(qkv.candidates.size() == 6);
  CHECK(qkv.candidates[0].target == "vllm-cpu");
  CHECK(qkv.candidates[0].StepOf(1)->timing->seconds == Approx(3e-3));
  CHECK(qkv.candidates[0].sample.size() == 1);
  CHECK(qkv.candidates[3].layouts == std::vector<std::string>{"onednn/w4a16"});
  CHECK(qkv.candidates[3].StepOf(1)->timing->seconds == Approx(3 * 2e-3));
  CHECK(qkv.candidates[3].sample.size() == 3);
  CHECK(*qkv.candidates[3].sqnr_db > 50);
  // 4 products of 3 ms against 7 of 2 ms.
  CHECK(report.choice->total.target == "vllm-cpu");
  CHECK(report.choice->total.StepOf(1)->timing->seconds == Approx(12e-3));
}

TEST_CASE("experts run in one op, or one by one with their share of the tokens") {
  SaidRuntime vllm({{"vllm-cpu/int8-vnni", 3e-3}});
  SaidRuntime onednn({{"onednn/w8a8", 2e-3}});
  TuneOptions options = TuneFixture("ct-int8-moe");
  options.targets = {"vllm-cpu", "onednn"};
  options.batches = {1, 8};
  TuneMachine machine = MachineWith(vllm, "vllm-cpu");
  machine.runtimes.push_back({.target = "onednn", .runtime = &onednn});
  machine.features = {CpuFeature::kAvx2, CpuFeature::kAvx512, CpuFeature::kVnni,
                      CpuFeature::kBf16};  // AMX would want another form of oneDNN's weights
  Progress progress;
  const TuneReport report = Value(TuneOn(machine, options, progress));
  REQUIRE(report.kinds.size() == 1);
  const TunedKind& kind = report.kinds[0];
  CHECK(kind.modules() == 18);
  CHECK(kind.shapes[0].experts == 3);
  CHECK(ShapeText(kind.shapes[0]) == "2 × 3 experts, 2 per token");
  CHECK(vllm.prepared.empty());
  using Mixture = std::tuple<std::string, uint64_t, uint64_t, uint64_t>;
  CHECK(vllm.mixtures == std::multiset<Mixture>{{"model.layers.0.mlp.experts", 3, 2, 1},
                                                {"model.layers.0.mlp.experts", 3, 2, 8}});
  REQUIRE(kind.candidates.size() == 3);
  // Two layers.
  CHECK(kind.candidates[0].StepOf(1)->timing->seconds == Approx(2 * 10 * 3e-3));
  CHECK(*kind.candidates[0].sqnr_db > 35);
  // A token goes through 2 experts of 3 modules; 8 tokens give 5 or 6 rows to each of 3 experts.
  CHECK(kind.candidates[1].StepOf(1)->timing->seconds == Approx(2 * 2 * 3 * 2e-3));
  CHECK(kind.candidates[1].StepOf(8)->timing->seconds == Approx(2 * 3 * (5 + 5 + 6) * 2e-3));
  // vLLM's ops for experts read no such layout of this plug-in; oneDNN multiplies one by one.
  CHECK(kind.candidates[2].target == "onednn");
  CHECK(kind.candidates[2].scheme == "bf16");
  CHECK(kind.ReadShare(1) == Approx(2.0 / 3));
  CHECK(kind.ReadShare(8) == 1);
}

TEST_CASE("a layout that has no op for experts is not possible for them") {
  SaidRuntime runtime({});
  TuneOptions options = TuneFixture("ct-nested-moe");
  options.targets = {"vllm-cpu"};
  const Result<TuneReport> report = TuneWith(runtime, options);
  RequireOk(report.status());
  const TunedKind& kind = KindOf(*report, ".experts");
  for (const TuneCandidate& candidate : kind.candidates) {
    CHECK(candidate.layouts == std::vector<std::string>{"vllm-cpu/int4-w4a8"});
  }
  REQUIRE_FALSE(kind.rejections.empty());
  CHECK(kind.rejections[0].why ==
        "vllm-cpu/wna16: its runtime has no op for experts that reads it");
}

TEST_CASE("tokens are spread over experts as evenly as they go") {
  using Spread = std::vector<std::pair<uint64_t, uint64_t>>;
  CHECK(RowsOfExperts(1, 8, 2) == Spread{{1, 2}});
  CHECK(RowsOfExperts(4, 8, 2) == Spread{{1, 8}});
  CHECK(RowsOfExperts(5, 8, 2) == Spread{{1, 6}, {2, 2}});
  CHECK(RowsOfExperts(512, 128, 8) == Spread{{32, 128}});
  CHECK(RowsOfExperts(3, 4, 4) == Spread{{3, 4}});
  CHECK(RowsOfExperts(1, 4, 0).empty());
}

TEST_CASE("of mixed widths each kind gets the schemes for its weights") {
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 1e-3}, {"onednn/w8a8", 1e-3}});
  TuneOptions options = TuneFixture("ct-mixed");
  const TuneReport report = Value(TuneWith(runtime, options));
  const TunedKind& eight = KindOf(report, "k_proj");
  REQUIRE(eight.candidates.size() == 2);
  CHECK(eight.candidates[0].scheme == "w8a8");
  CHECK(eight.candidates[1].scheme == "bf16");
  REQUIRE_FALSE(eight.rejections.empty());
  CHECK(eight.rejections[0].scheme == "w8a16");
  CHECK(KindOf(report, "down_proj").candidates.size() == 3);
  // With bf16 for what no layout takes.
  options.fallback = Fallback::kDequantize;
  SaidRuntime with_plain({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 1e-3}, {"plain/bf16", 5e-4}});
  const TuneReport plain = Value(TuneWith(with_plain, options));
  CHECK(KindOf(plain, "k_proj").candidates[0].layouts == std::vector<std::string>{"plain/bf16"});
  CHECK(plain.choice->total.label == "bf16+w8a16");
}

TEST_CASE("recorded activations decide the accuracy where there are any") {
  const TempFolder folder;
  const auto file = folder / "acts.safetensors";
  const std::string module = "model.layers.0.self_attn.k_proj";
  auto plan =
      Value(PlanSafetensors({{.name = module, .dtype = DType::kF32, .shape = {1, 384}}}, {}));
  auto writer = Value(SafetensorsWriter::Create(file, std::move(plan)));
  // One large number among small ones: with 8 bits, those are all but gone.
  std::vector<float> x(384, 0.004F);
  x[0] = 100;
  RequireOk(writer.Write(0, 0, std::as_bytes(std::span(x))));
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 1e-3}});
  TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  const double gaussian =
      *KindOf(Value(TuneWith(runtime, options)), "k_proj").candidates[1].sqnr_db;
  options.activations = file;
  const TuneReport report = Value(TuneWith(runtime, options));
  CHECK(std::abs(*KindOf(report, "k_proj").candidates[1].sqnr_db - gaussian) > 1);
  CHECK(*KindOf(report, "q_proj").candidates[1].sqnr_db == Approx(42.6).margin(1));
}

TEST_CASE("oneDNN's kernels run, and take time") {
  Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  if (!engine.ok()) {
    WARN("not run: " << engine.status().ToString());
    return;
  }
  const auto runtime = MakeOneDnnRuntime(**engine);
  TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  options.batches = {1};
  TuneMachine machine = MachineWith(*runtime);
  machine.engine = engine->get();
  Progress progress;
  const TuneReport report = Value(TuneOn(machine, options, progress));
  REQUIRE(report.choice.has_value());
  for (const TunedKind& kind : report.kinds) {
    for (const TuneCandidate& candidate : kind.candidates) {
      CAPTURE(kind.role, candidate.scheme);
      REQUIRE(candidate.IsMeasured(1));
      CHECK(candidate.steps[0].timing->seconds > 0);
      CHECK(candidate.steps[0].timing->low <= candidate.steps[0].timing->high);
      CHECK_FALSE(candidate.implementation.empty());
      CHECK(*candidate.sqnr_db > 35);
    }
  }
}

TEST_CASE("what cannot be tuned is refused") {
  SaidRuntime runtime({});
  TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  options.targets = {"onednm"};
  CheckError(TuneWith(runtime, options).status(), ErrorKind::kUsage, "Did you mean onednn?");
  options.targets = {"onednn", "onednn"};
  CheckError(TuneWith(runtime, options).status(), ErrorKind::kUsage, "named twice");
  options.targets = {};
  Progress progress;
  CheckError(TuneOn({}, options, progress).status(), ErrorKind::kUsage, "no target is named");
  options = TuneFixture("ct-w4a16-g128-sym");
  options.batches = {0};
  CheckError(TuneWith(runtime, options).status(), ErrorKind::kUsage, "--batch");
  options.batches = {};
  CheckError(TuneWith(runtime, options).status(), ErrorKind::kUsage, "no batch is named");
  options = TuneFixture("ct-w4a16-g128-sym");
  options.layers = 0;
  CheckError(TuneWith(runtime, options).status(), ErrorKind::kUsage, "--layers");
  TuneMachine small = MachineWith(runtime);
  small.memory_bytes = 1;
  CheckError(TuneOn(small, TuneFixture("ar-w3-sym"), progress).status(), ErrorKind::kUnsupported,
             "no layout takes it: in bf16 the model takes 5.1 MB, and this machine has 1 B of "
             "memory; the codes have 3 bits");
}

TEST_CASE("bf16 is a candidate where the model fits into memory so") {
  SaidRuntime runtime({{"plain/bf16", 1e-3}});
  // No layout takes codes of 3 bits.
  const TuneReport report = Value(TuneWith(runtime, TuneFixture("ar-w3-sym")));
  REQUIRE(report.choice.has_value());
  CHECK(report.choice->total.label == "bf16");
  CHECK(LayoutsText(report.kinds[0].candidates[0]) == "plain/bf16 (onednn)");

  SaidRuntime others({{"onednn/w4a16", 2e-3}, {"onednn/w4a8", 3e-3}, {"plain/bf16", 1e-3}});
  const TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  TuneMachine machine = MachineWith(others);
  machine.memory_bytes = uint64_t{1} << 40;
  Progress progress;
  CHECK(Value(TuneOn(machine, options, progress)).choice->total.label == "bf16");
  machine.memory_bytes = 4'000'000;
  const TuneReport small = Value(TuneOn(machine, options, progress));
  CHECK(small.choice->total.label == "w4a16");
  const auto& rejections = small.kinds[0].rejections;
  REQUIRE(rejections.size() == 1);
  CHECK(rejections[0].scheme == "bf16");
  CHECK(rejections[0].why ==
        "in bf16 the model takes 4.7 MB, and this machine has 4.0 MB of memory");
}

size_t ScratchFoldersIn(const std::filesystem::path& folder) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().filename().string().starts_with("prepack-") ? 1 : 0;
  }
  return count;
}

TEST_CASE("the sample is gone at the end, and after a request to stop") {
  const TempFolder folder;
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", folder.path().c_str(), 1);
  SaidRuntime runtime({{"onednn/w4a16", 2e-3}});
  RequireOk(TuneWith(runtime, TuneFixture("ct-w4a16-g128-sym")).status());
  CHECK(ScratchFoldersIn(folder.path()) == 0);
  {
    const ScratchFolder scratch = Value(ScratchFolder::Create());
    CHECK(ScratchFoldersIn(folder.path()) == 1);
  }
  RequestCancellation();
  const Status status = TuneWith(runtime, TuneFixture("ct-w4a16-g128-sym")).status();
  ResetCancellation();
  CHECK(ExitCode(status) == 130);
  CHECK(ScratchFoldersIn(folder.path()) == 0);
  setenv("TMPDIR", (folder / "nowhere").c_str(), 1);
  CheckError(ScratchFolder::Create().status(), ErrorKind::kSystem, "TMPDIR");
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", kept.c_str(), 1);
  }
}

}  // namespace
}  // namespace prepack::testing
