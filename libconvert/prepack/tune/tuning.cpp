#include "prepack/tune/tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "prepack/convert/convert.h"
#include "prepack/tune/sample_folder.h"

namespace prepack {
namespace {

constexpr uint64_t kWeightsForAccuracy = uint64_t{1} << 18;  // of each module
constexpr double kLeastSecondsOfCell = 0.02;
constexpr double kMostSecondsOfCell = 2;

Result<PackedModule> OpenModule(const TuneVariant& variant, const std::string& name) {
  const auto& modules = variant.folder->manifest().modules;
  const auto record = modules.find(name);
  if (record == modules.end()) {
    return Unsupported(name, "the packed sample does not hold the module");
  }
  return PackedModule::Open(*variant.folder, record->first, record->second);
}

// What a unit was packed to: itself, or each of its modules.
Result<std::vector<PackedModule>> OpenUnit(const TuneVariant& variant, const TuneUnit& unit) {
  std::vector<PackedModule> opened;
  std::vector<std::string> names;
  if (variant.folder->manifest().modules.contains(unit.name)) {
    names.push_back(unit.name);
  } else {
    for (const QuantizedLinear* linear : unit.modules) names.emplace_back(linear->module());
  }
  for (const std::string& name : names) {
    PREPACK_TRY_ASSIGN(PackedModule module, OpenModule(variant, name));
    opened.push_back(std::move(module));
  }
  return opened;
}

}  // namespace

Tuning::Tuning(const TuneMachine& machine, const TuneOptions& options, const Checkpoint& checkpoint,
               const QuantizedModel& model, Progress& progress)
    : machine_(machine),
      options_(options),
      checkpoint_(checkpoint),
      model_(model),
      progress_(progress),
      times_(machine) {}

Status Tuning::PackSample(TuneVariant& variant, const std::filesystem::path& sample) {
  const std::filesystem::path output =
      scratch_->path() / fmt::format("{}-{}", variant.target(), variant.scheme);
  ConvertOptions convert{.source = sample, .output = output, .plan = variant.options};
  convert.jobs = options_.threads;
  convert.flush = false;
  Progress unseen;
  const Result<ConvertReport> done = Convert(convert, unseen);
  if (!done.ok()) {
    if (!IsOfOneCandidate(done.status())) return done.status();
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
      for (const TuneUnit& unit : shape.sample) {
        modules.insert(modules.end(), unit.modules.begin(), unit.modules.end());
      }
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
    for (const TuneUnit& unit : shape.sample) {
      PREPACK_TRY_ASSIGN(const std::vector<PackedModule> opened, OpenUnit(variant, unit));
      for (const PackedModule& packed : opened) {
        if (CancellationRequested()) return Interrupted(packed.name());
        progress_.BeginItem(packed.name());
        Result<SampledModule> accuracy = prepack::MeasureAccuracy(packed, source, products);
        if (accuracy.ok()) {
          modules.push_back(*std::move(accuracy));
        } else if (IsOfOneCandidate(accuracy.status())) {
          candidate.why_no_sqnr = accuracy.status().ToString();
        } else {
          return std::move(accuracy).status();
        }
        progress_.Add(packed.request().n * packed.request().k);
      }
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
      weights += kind.found.candidates.size() * shape.sampled_weights();
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

// Adds a product's figure to the step of a candidate, which has one before only if all before have.
static void AddToStep(const Result<Timing>& timing, double times, bool is_first, TuneStep& step) {
  if (!timing.ok()) {
    step.timing.reset();
    if (step.why_not.empty()) step.why_not = timing.status().what();
    return;
  }
  if (!step.why_not.empty()) return;
  const Timing own = *timing * times;
  step.timing = is_first ? own : *step.timing + own;
}

// What the variant runs of a unit for so many tokens.
static Result<std::vector<KernelWork>> WorkOf(const TuneVariant& variant, const TuneShape& shape,
                                              uint64_t tokens) {
  PREPACK_TRY_ASSIGN(std::vector<PackedModule> modules, OpenUnit(variant, shape.sample.front()));
  std::vector<KernelWork> work;
  if (shape.experts == 0) {
    for (PackedModule& module : modules) {
      work.push_back({.target = variant.target(), .module = std::move(module), .rows = tokens});
    }
    return work;
  }
  if (variant.plan->target->runs_fused) {
    work.push_back({.target = variant.target(),
                    .module = std::move(modules.front()),
                    .rows = tokens,
                    .mixture = ExpertsInOneOp{.mixture = shape.sample.front().name,
                                              .experts = shape.experts,
                                              .top_k = shape.top_k}});
    return work;
  }
  // The modules of one expert stand for those of all.
  const size_t of_each = shape.units.front().modules.size() / shape.experts;
  for (size_t i = 0; i < of_each; ++i) {
    for (const auto& [rows, experts] : RowsOfExperts(tokens, shape.experts, shape.top_k)) {
      work.push_back({.target = variant.target(),
                      .module = modules[i],
                      .rows = rows,
                      .times = static_cast<double>(experts)});
    }
  }
  return work;
}

Status Tuning::MeasureShape(const std::vector<TuneVariant>& variants, KindInWork& kind,
                            const TuneShape& shape, uint64_t rows) {
  std::vector<std::vector<KernelWork>> works;  // of each candidate
  size_t most = 0;
  for (KindCandidate& one : kind.found.candidates) {
    const TuneVariant& variant = variants[one.variant];
    std::vector<KernelWork>& work = works.emplace_back();
    if (variant.folder == nullptr) continue;
    PREPACK_TRY_ASSIGN(work, WorkOf(variant, shape, rows));
    most = std::max(most, work.size());
  }
  for (size_t i = 0; i < most; ++i) {
    std::vector<const KernelWork*> rivals;
    for (const std::vector<KernelWork>& work : works) {
      if (i < work.size()) rivals.push_back(&work[i]);
    }
    PREPACK_TRY(times_.Measure(rivals, seconds_of_cell_));
  }
  const bool is_first = &shape == &kind.kind->shapes.front();
  for (size_t i = 0; i < works.size(); ++i) {
    TuneCandidate& candidate = kind.found.candidates[i].candidate;
    const TuneVariant& variant = variants[kind.found.candidates[i].variant];
    if (is_first) candidate.steps.push_back({.rows = rows, .timing = {}, .why_not = {}});
    TuneStep& step = *std::ranges::find(candidate.steps, rows, &TuneStep::rows);
    if (variant.folder == nullptr) AddToStep(variant.failure, 1, is_first, step);
    for (const KernelWork& work : works[i]) {
      const KnownTime& known = times_.Of(work);
      if (candidate.implementation.empty()) candidate.implementation = known.implementation;
      candidate.is_reference = candidate.is_reference || known.is_reference;
      AddToStep(known.timing, work.times * static_cast<double>(shape.units.size()),
                is_first && &work == &works[i].front(), step);
    }
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
