#include "prepack/tune/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "prepack/convert/convert.h"
#include "prepack/doctor/doctor.h"
#include "prepack/tune/measure.h"

namespace prepack {
namespace {

// A reference implementation that would take longer for one product is not run.
constexpr double kMostReferenceSeconds = 1;
constexpr uint64_t kWeightsForAccuracy = uint64_t{1} << 18;  // of each module
constexpr double kLeastSecondsOfCell = 0.02;
constexpr double kMostSecondsOfCell = 2;

// An error that concerns only one candidate; any other ends the run.
bool IsOfTheCandidate(const Status& status) {
  return status.kind() == ErrorKind::kUnsupported || status.kind() == ErrorKind::kUnavailable;
}

Result<PackedModule> OpenModule(const TuneVariant& variant, const QuantizedLinear& linear) {
  const auto& modules = variant.folder->manifest().modules;
  const auto record = modules.find(linear.module());
  if (record == modules.end()) {
    return Unsupported(linear.module(), "the packed sample does not hold the module");
  }
  return PackedModule::Open(*variant.folder, record->first, record->second);
}

}  // namespace

// A candidate of a kind, of which one shape is measured.
struct Tuning::Rival {
  TuneCandidate* candidate;
  std::optional<PackedModule> module = {};
  std::unique_ptr<PreparedKernel> kernel = nullptr;
  Result<Timing> timing = Unavailable("", "it was not measured");
};

Tuning::Tuning(const TuneMachine& machine, const TuneOptions& options, const Checkpoint& checkpoint,
               const QuantizedModel& model, Progress& progress)
    : machine_(machine),
      options_(options),
      checkpoint_(checkpoint),
      model_(model),
      progress_(progress) {}

Status Tuning::PackSample(TuneVariant& variant, const std::filesystem::path& sample) {
  const std::filesystem::path output =
      scratch_->path() / fmt::format("{}-{}", variant.target(), variant.scheme);
  ConvertOptions convert{.source = sample, .output = output, .plan = variant.options};
  convert.jobs = options_.threads;
  convert.flush = false;
  Progress unseen;
  const Result<ConvertReport> done = Convert(convert, unseen);
  if (!done.ok()) {
    if (!IsOfTheCandidate(done.status())) return done.status();
    variant.failure = done.status();
    return {};
  }
  PREPACK_TRY_ASSIGN(PackedFolder folder, PackedFolder::Open(output));
  variant.folder = std::make_unique<PackedFolder>(std::move(folder));
  return {};
}

Status Tuning::PackSamples(const std::vector<KindInWork>& kinds,
                           std::vector<TuneVariant>& variants) {
  std::vector<const QuantizedLinear*> modules;
  std::set<size_t> needed;
  for (const KindInWork& kind : kinds) {
    for (const TuneShape& shape : kind.kind->shapes) {
      modules.insert(modules.end(), shape.sample.begin(), shape.sample.end());
    }
    for (const KindCandidate& one : kind.found.candidates) needed.insert(one.variant);
  }
  PREPACK_TRY_ASSIGN(ScratchFolder scratch, ScratchFolder::Create());
  scratch_.emplace(std::move(scratch));
  progress_.Begin("packing a sample", 0);
  const std::filesystem::path sample = scratch_->path() / "sample";
  PREPACK_TRY(WriteSample(checkpoint_, modules, sample));
  for (const size_t variant : needed) {
    if (CancellationRequested()) return Interrupted("packing a sample");
    progress_.BeginItem(fmt::format("{} {}", variants[variant].target(), variants[variant].scheme));
    PREPACK_TRY(PackSample(variants[variant], sample));
  }
  return {};
}

Status Tuning::MeasureAccuracy(const KindInWork& kind, const TuneVariant& variant,
                               const SecondDecoder& source, TuneCandidate& candidate) {
  // A reference implementation takes seconds for what the model of it says at once.
  const ProductOptions products{.engine = candidate.is_reference ? nullptr : machine_.engine,
                                .repack = true,
                                .recorded = recorded_ ? &*recorded_ : nullptr,
                                .sampled_weights = kWeightsForAccuracy,
                                .sample_only = true,
                                .threads = options_.threads};
  std::vector<SampledModule> modules;
  for (const TuneShape& shape : kind.kind->shapes) {
    for (const QuantizedLinear* linear : shape.sample) {
      if (CancellationRequested()) return Interrupted(linear->module());
      PREPACK_TRY_ASSIGN(const PackedModule packed, OpenModule(variant, *linear));
      progress_.BeginItem(linear->module());
      Result<SampledModule> accuracy = prepack::MeasureAccuracy(packed, source, products);
      if (accuracy.ok()) {
        modules.push_back(*std::move(accuracy));
      } else if (IsOfTheCandidate(accuracy.status())) {
        candidate.why_no_sqnr = accuracy.status().ToString();
      } else {
        return std::move(accuracy).status();
      }
      progress_.Add(linear->n() * linear->k());
    }
  }
  if (modules.empty()) return {};
  const auto worst = std::ranges::min_element(modules, {}, &SampledModule::sqnr_db);
  candidate.worst_module = worst->module;
  candidate.worst_db = worst->sqnr_db;
  candidate.sqnr_db = MeanDecibelOf(modules);
  candidate.sample = std::move(modules);
  return {};
}

Status Tuning::MeasureAccuracies(const std::vector<TuneVariant>& variants,
                                 std::vector<KindInWork>& kinds) {
  if (options_.activations) {
    PREPACK_TRY_ASSIGN(Checkpoint recorded, Checkpoint::Open(*options_.activations));
    recorded_.emplace(std::move(recorded));
  }
  const Result<SecondDecoder> source = SecondDecoder::Make(checkpoint_, model_.format);
  uint64_t weights = 0;
  for (const KindInWork& kind : kinds) {
    for (const TuneShape& shape : kind.kind->shapes) {
      weights += kind.found.candidates.size() * shape.sample.size() * shape.first().n() *
                 shape.first().k();
    }
  }
  progress_.Begin("accuracy", weights);
  for (KindInWork& kind : kinds) {
    for (KindCandidate& one : kind.found.candidates) {
      if (!source.ok()) {
        one.candidate.why_no_sqnr = source.status().ToString();
        continue;
      }
      const TuneVariant& variant = variants[one.variant];
      if (variant.folder == nullptr) continue;
      PREPACK_TRY(MeasureAccuracy(kind, variant, *source, one.candidate));
    }
  }
  return {};
}

KernelRuntime* Tuning::RuntimeOf(const std::string& target, std::string& why_not) const {
  const auto found = std::ranges::find(machine_.runtimes, target, &TargetRuntime::target);
  why_not = found->why_not;
  return found->runtime;
}

const Tuning::KnownTime* Tuning::FindKnown(const std::string& target, const PackedModule& module,
                                           uint64_t rows) const {
  const auto known = std::ranges::find_if(known_, [&](const KnownTime& time) {
    return time.rows == rows && time.target == target && time.layout == &module.layout() &&
           time.request == module.request();
  });
  return known == known_.end() ? nullptr : &*known;
}

// What a reference implementation took for fewer rows says enough.
std::string Tuning::WhyTooSlow(const Rival& rival, uint64_t rows) const {
  const KnownTime* most = nullptr;
  for (const KnownTime& time : known_) {
    const bool same = time.target == rival.candidate->target &&
                      time.layout == &rival.module->layout() &&
                      time.request == rival.module->request();
    if (!same || !time.is_reference || !time.timing.ok() || time.rows >= rows) continue;
    if (most == nullptr || most->rows < time.rows) most = &time;
  }
  if (most == nullptr) return "";
  const double expected =
      most->timing->seconds * static_cast<double>(rows) / static_cast<double>(most->rows);
  if (expected <= kMostReferenceSeconds) return "";
  return fmt::format(
      "there is only a reference implementation ({}), which would take seconds for so many rows",
      most->implementation);
}

void Tuning::PrepareRival(uint64_t rows, Rival& rival) {
  const Layout& layout = rival.module->layout();
  const LayoutFit fit = FitOf(layout, machine_.features);
  std::string why_not;
  KernelRuntime* const runtime = RuntimeOf(rival.candidate->target, why_not);
  if (fit.fit == CpuFit::kNot) {
    rival.timing = Unavailable(layout.id, fmt::format("its kernel {} (this CPU)", fit.why));
  } else if (runtime == nullptr) {
    rival.timing = Unavailable(layout.id, why_not);
  } else if (std::string slow = WhyTooSlow(rival, rows); !slow.empty()) {
    rival.timing = Unavailable(layout.id, slow);
  } else {
    Result<std::unique_ptr<PreparedKernel>> kernel =
        runtime->Prepare(*rival.module, rows, machine_.cold_bytes);
    if (kernel.ok()) {
      rival.kernel = *std::move(kernel);
    } else {
      rival.timing = std::move(kernel).status();
    }
  }
}

Status Tuning::RaceRivals(uint64_t rows, std::vector<Rival>& rivals) {
  // Runtime after runtime: threads of one that has just run keep looking for work for a while.
  for (const TargetRuntime& runtime : machine_.runtimes) {
    std::vector<TimedProduct*> products;
    std::vector<Rival*> runners;
    for (Rival& rival : rivals) {
      if (rival.kernel == nullptr || rival.candidate->target != runtime.target) continue;
      products.push_back(rival.kernel.get());
      runners.push_back(&rival);
    }
    std::vector<Result<Timing>> timings = MeasureInTurn(products, {.seconds = seconds_of_cell_});
    for (size_t i = 0; i < runners.size(); ++i) runners[i]->timing = std::move(timings[i]);
  }
  for (const Rival& rival : rivals) {
    if (!rival.timing.ok() && !IsOfTheCandidate(rival.timing.status())) {
      return rival.timing.status();
    }
    known_.push_back({.target = rival.candidate->target,
                      .layout = &rival.module->layout(),
                      .request = rival.module->request(),
                      .rows = rows,
                      .timing = rival.timing,
                      .implementation = rival.kernel ? rival.kernel->implementation() : "",
                      .is_reference = rival.kernel && rival.kernel->is_reference()});
  }
  return {};
}

// Adds a shape's figure to the step of a candidate, which has one before only if the shapes before
// have.
static void AddToStep(const Result<Timing>& timing, size_t modules, bool is_first, TuneStep& step) {
  if (!timing.ok()) {
    step.timing.reset();
    if (step.why_not.empty()) step.why_not = timing.status().what();
    return;
  }
  if (!step.why_not.empty()) return;
  const Timing own = *timing * static_cast<double>(modules);
  step.timing = is_first ? own : *step.timing + own;
}

Status Tuning::MeasureShape(const std::vector<TuneVariant>& variants, KindInWork& kind,
                            const TuneShape& shape, uint64_t rows) {
  std::vector<Rival> rivals;
  for (KindCandidate& one : kind.found.candidates) {
    const TuneVariant& variant = variants[one.variant];
    if (variant.folder == nullptr) continue;
    Rival rival{.candidate = &one.candidate};
    PREPACK_TRY_ASSIGN(PackedModule module, OpenModule(variant, *shape.sample.front()));
    rival.module.emplace(std::move(module));
    if (FindKnown(one.candidate.target, *rival.module, rows) != nullptr) continue;
    PrepareRival(rows, rival);
    rivals.push_back(std::move(rival));
  }
  PREPACK_TRY(RaceRivals(rows, rivals));
  const bool is_first = &shape == &kind.kind->shapes.front();
  for (KindCandidate& one : kind.found.candidates) {
    const TuneVariant& variant = variants[one.variant];
    TuneCandidate& candidate = one.candidate;
    if (is_first) candidate.steps.push_back({.rows = rows, .timing = {}, .why_not = {}});
    TuneStep& step = *std::ranges::find(candidate.steps, rows, &TuneStep::rows);
    if (variant.folder == nullptr) {
      AddToStep(variant.failure, shape.modules.size(), is_first, step);
      continue;
    }
    PREPACK_TRY_ASSIGN(const PackedModule module, OpenModule(variant, *shape.sample.front()));
    const KnownTime& known = *FindKnown(candidate.target, module, rows);
    if (candidate.implementation.empty()) candidate.implementation = known.implementation;
    candidate.is_reference = candidate.is_reference || known.is_reference;
    AddToStep(known.timing, shape.modules.size(), is_first, step);
  }
  return {};
}

Status Tuning::MeasureTimes(const std::vector<TuneVariant>& variants,
                            std::vector<KindInWork>& kinds) {
  uint64_t shapes = 0;
  for (const KindInWork& kind : kinds) shapes += kind.kind->shapes.size();
  const uint64_t cells = shapes * options_.batches.size();
  seconds_of_cell_ =
      std::clamp(options_.seconds / static_cast<double>(std::max<uint64_t>(cells, 1)),
                 kLeastSecondsOfCell, kMostSecondsOfCell);
  progress_.Begin("time", 0);
  for (KindInWork& kind : kinds) {
    for (const TuneShape& shape : kind.kind->shapes) {
      for (const uint64_t rows : options_.batches) {
        if (CancellationRequested()) return Interrupted("measuring");
        progress_.BeginItem(fmt::format("{}, batch {}", kind.kind->role, rows));
        PREPACK_TRY(MeasureShape(variants, kind, shape, rows));
      }
    }
  }
  return {};
}

}  // namespace prepack
