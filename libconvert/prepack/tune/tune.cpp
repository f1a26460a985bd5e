#include "prepack/tune/tune.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "prepack/base/isa.h"
#include "prepack/base/text.h"
#include "prepack/doctor/doctor.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/packed_model.h"
#include "prepack/tune/cpus.h"
#include "prepack/tune/tuning.h"

namespace prepack {
namespace {

constexpr uint64_t kLeastColdBytes = uint64_t{64} << 20;
constexpr uint64_t kMostRows = 65536;

// Targets whose kernels can be measured.
constexpr std::array<std::string_view, 4> kMeasurable = {"vllm-cpu", "zentorch", "vllm-arm",
                                                         "onednn"};

Status CheckTargets(const std::vector<std::string>& targets) {
  if (targets.empty()) return Usage("--target", "no target is named");
  for (const std::string& target : targets) {
    if (!CanBeTuned(target)) {
      const std::vector<std::string> known(kMeasurable.begin(), kMeasurable.end());
      return Usage("--target", "not a target whose kernels can be measured")
          .Found(target)
          .Expected(fmt::format("{}", fmt::join(kMeasurable, ", ")))
          .Hint(DidYouMean(target, known));
    }
    if (std::ranges::count(targets, target) > 1) {
      return Usage("--target", "a target is named twice").Found(target);
    }
  }
  return {};
}

Status CheckOptions(const TuneOptions& options) {
  PREPACK_TRY(CheckTargets(options.targets));
  if (options.batches.empty()) return Usage("--batch", "no batch is named");
  for (const uint64_t rows : options.batches) {
    if (rows >= 1 && rows <= kMostRows) continue;
    return Usage("--batch", "not a number of rows that can be measured")
        .Found(fmt::format("{}", rows))
        .Expected(fmt::format("1 to {}", kMostRows));
  }
  if (options.layers == 0) return Usage("--layers", "at least one layer is needed");
  return {};
}

Result<QuantizedModel> ReadModel(const Checkpoint& checkpoint, const TuneOptions& options) {
  if (IsPackedFolder(checkpoint)) {
    return Unsupported(options.source.string(), "this is a packed folder: its layouts are chosen")
        .Hint("Tune the checkpoint that it was made from");
  }
  PREPACK_TRY_ASSIGN(QuantizedModel model, ReadSourceModel(checkpoint, options.accepted));
  if (model.modules.empty()) {
    return Unsupported(options.source.string(), "the checkpoint has no quantized module");
  }
  return model;
}

PlanOptions CommonOptions(const TuneOptions& options) {
  PlanOptions plan;
  plan.activation_dtype = options.activation_dtype;
  plan.fallback = options.fallback;
  plan.accepted = options.accepted;
  return plan;
}

TunedKind DescribeKind(const KindInWork& work) {
  TunedKind kind{.role = work.kind->role, .pattern = work.kind->Pattern(), .bits = work.kind->bits};
  for (const TuneShape& shape : work.kind->shapes) {
    kind.shapes.push_back({.n = shape.n(),
                           .k = shape.first().k(),
                           .scheme = DescribeScheme(shape.first().scheme()),
                           .modules = shape.modules(),
                           .units = shape.units.size(),
                           .experts = shape.experts,
                           .top_k = shape.top_k});
  }
  for (const KindCandidate& one : work.found.candidates) kind.candidates.push_back(one.candidate);
  kind.rejections = work.found.rejections;
  return kind;
}

// The child with the ops of vLLM, or why there is none.
struct PythonState {
  std::unique_ptr<KernelRuntime> runtime = nullptr;
  std::string why_not = {};
};

std::string_view InstallOf(std::string_view consumer) {
  return std::ranges::find(AllConsumers(), consumer, &Consumer::id)->install;
}

// What is missing in the environment, and how to get it; empty: nothing is.
std::string WhatIsMissing(const std::optional<PythonEnvironment>& python) {
  if (!python) {
    return fmt::format("no Python was found. Name one with --python that has vLLM ({}) and {}",
                       InstallOf("vllm"), "the plug-in prepack-vllm (integrations/vllm)");
  }
  for (const std::string_view id : {"vllm", "prepack-vllm"}) {
    const Consumer& consumer = *std::ranges::find(AllConsumers(), id, &Consumer::id);
    const bool there = std::ranges::any_of(consumer.packages, [&](std::string_view package) {
      return !python->VersionOf(package).empty();
    });
    if (there) continue;
    return fmt::format("{} is not installed in {}: {}, or name another Python with --python",
                       consumer.name, python->prefix.string(), consumer.install);
  }
  return "";
}

// Not for oneDNN alone.
Result<PythonState> StartPython(const TuneOptions& options, const TuneMachine& machine) {
  PythonState state;
  if (std::ranges::all_of(options.targets, [](const auto& target) { return target == "onednn"; })) {
    return state;
  }
  PREPACK_TRY_ASSIGN(const std::optional<PythonEnvironment> python, FindPython(options.python));
  state.why_not = WhatIsMissing(python);
  if (!state.why_not.empty()) return state;
  std::error_code error;
  const bool named = std::filesystem::is_regular_file(options.python, error);
  Result<std::unique_ptr<KernelRuntime>> runtime =
      StartPythonRuntime(named ? options.python : python->prefix / "bin" / "python3",
                         static_cast<unsigned>(machine.cpus.size()));
  if (runtime.ok()) {
    state.runtime = *std::move(runtime);
  } else if (runtime.status().kind() == ErrorKind::kInterrupted) {
    return std::move(runtime).status();
  } else {
    state.why_not = runtime.status().ToString();
  }
  return state;
}

// Kinds that no target has a layout for stay as they are, whatever is chosen for the others.
void LeaveOutImpossible(std::vector<KindInWork>& kinds, TuneReport& report) {
  const auto impossible = [&](const KindInWork& kind) {
    if (!kind.found.candidates.empty()) return false;
    std::set<std::string> reasons;
    for (const TuneRejection& one : kind.found.rejections) reasons.insert(one.why);
    report.left_out[kind.kind->role] =
        reasons.empty() ? std::string("no layout takes it")
                        : fmt::format("no layout takes it: {}", fmt::join(reasons, "; "));
    return true;
  };
  kinds.erase(std::remove_if(kinds.begin(), kinds.end(), impossible), kinds.end());
}

}  // namespace

bool CanBeTuned(std::string_view target) {
  return std::ranges::find(kMeasurable, target) != kMeasurable.end();
}

Result<TuneReport> TuneOn(const TuneMachine& machine, const TuneOptions& wanted,
                          Progress& progress) {
  PREPACK_TRY(CheckOptions(wanted));
  TuneOptions options = wanted;
  std::ranges::sort(options.batches);
  options.batches.erase(std::unique(options.batches.begin(), options.batches.end()),
                        options.batches.end());
  options.threads = static_cast<unsigned>(std::max<size_t>(machine.cpus.size(), 1));
  PREPACK_TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(options.source));
  PREPACK_TRY_ASSIGN(const QuantizedModel model, ReadModel(checkpoint, options));
  TuneReport report{.source = options.source.string(), .format = model.format};
  const bool fuse = std::ranges::any_of(
      options.targets, [](const std::string& target) { return FindTarget(target)->runs_fused; });
  PREPACK_TRY_ASSIGN(TuneKinds found,
                     KindsOf(checkpoint, model, {.layers = options.layers, .fuse = fuse}));
  report.left_out = std::move(found.left_out);
  PREPACK_TRY_ASSIGN(std::vector<TuneVariant> variants,
                     PlanVariants(checkpoint, model, found.kinds, options.targets,
                                  CommonOptions(options), machine.memory_bytes));
  std::vector<KindInWork> kinds;
  for (const TuneKind& kind : found.kinds) {
    kinds.push_back({.kind = &kind, .found = CandidatesOf(kind, variants)});
  }
  LeaveOutImpossible(kinds, report);
  if (kinds.empty()) {
    return Unsupported(options.source.string(), "no module has a layout that could be measured")
        .Found(report.left_out.empty() ? "" : report.left_out.begin()->second)
        .Hint("`prepack plan` says what each layout takes");
  }
  Tuning tuning(machine, options, checkpoint, model, progress);
  PREPACK_TRY(tuning.PackSamples(kinds, variants));
  PREPACK_TRY(tuning.MeasureTimes(variants, kinds));
  PREPACK_TRY(tuning.MeasureAccuracies(variants, kinds));

  report.cpu = ReadMachine().cpu;
  report.threads = options.threads;
  report.cpus = machine.cpus;
  report.bandwidth = machine.bandwidth;
  report.cold_bytes = machine.cold_bytes;
  report.batches = options.batches;
  report.activations = options.activations ? options.activations->string() : "";
  report.layers = options.layers;
  report.goal = options.goal;
  report.min_sqnr_db = options.min_sqnr_db;
  for (const TargetRuntime& runtime : machine.runtimes) {
    report.runtimes.push_back({.target = runtime.target,
                               .name = runtime.runtime ? runtime.runtime->name() : "",
                               .why_not = runtime.why_not});
  }
  for (const KindInWork& kind : kinds) report.kinds.push_back(DescribeKind(kind));
  Decide(report);
  return report;
}

Result<TuneReport> Tune(const TuneOptions& options, Progress& progress) {
  const auto begin = std::chrono::steady_clock::now();
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY(CheckOptions(options));
  TuneMachine machine;
  PREPACK_TRY_ASSIGN(machine.cpus, ChooseCpus(AllowedCpus(), options.threads));
  PREPACK_TRY(PinTo(machine.cpus));
  const Machine here = ReadMachine();
  machine.features = here.features;
  machine.memory_bytes = here.UsableMemory();
  machine.cold_bytes = std::max(2 * here.l3_bytes, kLeastColdBytes);
  progress.Begin("memory", 0);
  machine.bandwidth = MeasureReadBandwidth(machine.cpus, 2 * machine.cold_bytes);
  // oneDNN starts its threads on the CPUs that were chosen.
  Result<std::unique_ptr<GemmEngine>> engine = MakeOneDnnEngine();
  std::unique_ptr<KernelRuntime> onednn;
  if (engine.ok()) {
    machine.engine = engine->get();
    onednn = MakeOneDnnRuntime(**engine);
  }
  PREPACK_TRY_ASSIGN(const PythonState python, StartPython(options, machine));
  for (const std::string& target : options.targets) {
    TargetRuntime runtime{.target = target};
    if (target == "onednn") {
      runtime.runtime = onednn.get();
      if (!engine.ok()) runtime.why_not = engine.status().ToString();
    } else {
      runtime.runtime = python.runtime.get();
      runtime.why_not = python.why_not;
    }
    machine.runtimes.push_back(std::move(runtime));
  }
  PREPACK_TRY_ASSIGN(TuneReport report, TuneOn(machine, options, progress));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace prepack
