// Prepares the levels, has them run over the folder (level_pass.h), and decides what a level that
// cannot run says instead. Everything that can fail because of the command line is checked before
// any level reads data, so that a long run does not end with a usage error.

#include "prepack/verify/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <future>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/isa.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/gemm/engine.h"
#include "prepack/gguf/model.h"
#include "prepack/io/memory_limit.h"
#include "prepack/layouts/table.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/node_shares.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/plain_modules.h"
#include "prepack/packed/split_experts.h"
#include "prepack/verify/exactness.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/gguf.h"
#include "prepack/verify/integrity.h"
#include "prepack/verify/judgement.h"
#include "prepack/verify/level_pass.h"
#include "prepack/verify/measured.h"
#include "prepack/verify/module_comparison.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/verification.h"

namespace prepack {

std::string_view EngineChoiceName(EngineChoice choice) {
  switch (choice) {
    case EngineChoice::kAuto:
      return "auto";
    case EngineChoice::kOneDnn:
      return "onednn";
    case EngineChoice::kReference:
      break;
  }
  return "reference";
}
namespace {

ModuleFigures EmptyFigures(const Manifest& manifest) {
  ModuleFigures figures;
  for (const auto& [name, record] : manifest.modules) {
    ModuleVerification& figure = figures[name];
    figure.module = name;
    figure.layout = record.layout;
    figure.n = record.n;
    figure.k = record.k;
  }
  return figures;
}

// What one thread needs for reading and hashing files and tensors piece by piece.
constexpr uint64_t kReadingMemory = uint64_t{1} << 20;
// What oneDNN takes when it starts, and what it and the allocator take besides the operands.
constexpr uint64_t kEngineMemory = uint64_t{40} << 20;
constexpr uint64_t kProductOverhead = uint64_t{4} << 20;
// What is known about the modules at the end, but not at the start.
constexpr uint64_t kReportMemory = uint64_t{8} << 20;
// Modules that are looked at side by side take at most so much together, unless a single one takes
// more: this, and for each thread that.
constexpr uint64_t kPassMemory = uint64_t{64} << 20;
constexpr uint64_t kPassMemoryOfThread = uint64_t{8} << 20;

ModuleNeed LargestOf(std::span<const ModuleNeed> needs) {
  const auto include = [](const MemoryNeed& own, MemoryNeed& largest) {
    largest.shared = std::max(largest.shared, own.shared);
    largest.per_thread = std::max(largest.per_thread, own.per_thread);
  };
  ModuleNeed largest;
  for (const ModuleNeed& need : needs) {
    include(need.compared, largest.compared);
    include(need.multiplied, largest.multiplied);
  }
  return largest;
}

LevelResult NotRun(std::string reason) {
  return {.state = LevelState::kNotRun, .reason = std::move(reason)};
}

}  // namespace

// What every level says until it has run.
void Verification::Begin() {
  figures_ = EmptyFigures(folder_.manifest());
  report_.folder = options_.folder.string();
  report_.target = folder_.manifest().target;
  for (const Level level : kLevels) {
    report_.level(level) = NotRun(std::string(kNeedsSource));
  }
  if (!options_.baseline) {
    level(Level::kQuality) = NotRun("no unquantized model was given (--baseline)");
    level(Level::kQuality).asked = false;
  }
  for (const Level skipped : options_.skip) {
    level(skipped).reason = SkippedOnRequest(skipped);
  }
  if (!options_.sample) return;
  sample_ = ChooseSample(folder_.manifest(), *options_.sample);
  report_.sample = Sample{.fraction = options_.sample->fraction,
                          .seed = options_.sample->seed,
                          .modules = sample_->size()};
  for (auto& [name, figure] : figures_) figure.looked_at = sample_->contains(name);
}

ModuleNeed Verification::NeedOfModule(const std::string& name, const ModuleRecord& record,
                                      const QuantizedModel* model) const {
  ModuleNeed need{.compared = {.shared = 0, .per_thread = kReadingMemory}, .multiplied = {}};
  if (!Runs(Level::kExactness) && !Multiplies()) return need;
  const Result<PackedModule> packed = PackedModule::Open(folder_, name, record);
  if (!packed.ok()) return need;  // for the levels to report
  const QuantizedLinear* linear = model != nullptr ? model->Find(name) : nullptr;
  if (Runs(Level::kExactness) && linear != nullptr && linear->n() == record.n) {
    need.compared.per_thread = std::max(kReadingMemory, MemoryOfComparison(*packed, *linear));
  }
  if (!Multiplies()) return need;
  need.multiplied = MemoryOfProducts(*packed, ProductChoice());
  need.multiplied.shared += kProductOverhead;
  return need;
}

std::vector<ModuleNeed> Verification::NeedsOfModules(const QuantizedModel* model) const {
  std::vector<ModuleNeed> needs;
  for (const auto& [name, record] : folder_.manifest().modules) {
    needs.push_back(InSample(sample(), name) ? NeedOfModule(name, record, model) : ModuleNeed());
  }
  return needs;
}

// With a limit as many threads as the largest module leaves room for, beside what is not of
// modules.
Result<unsigned> Verification::ThreadsFor(const ModuleNeed& largest, uint64_t beside) const {
  unsigned threads = ThreadCount(options_.jobs);
  std::array needs = {largest.compared, largest.multiplied};
  // The error is to say what all of it takes.
  if (largest.Of(1) != needs[0].shared + needs[0].per_thread) std::swap(needs[0], needs[1]);
  for (MemoryNeed need : needs) {
    need.shared += beside;
    PREPACK_TRY_ASSIGN(const unsigned fit,
                       ThreadsWithin(need, threads, options_.memory_limit, "verified"));
    threads = std::min(threads, fit);
  }
  return threads;
}

Result<PassResources> Verification::Resources(std::span<const ModuleNeed> needs) const {
  uint64_t sum = 0;
  for (const ModuleNeed& need : needs) sum += need.Of(1);
  const uint64_t mean = sum / std::max<uint64_t>(1, needs.size());
  if (options_.memory_limit == 0) {
    const unsigned threads = ThreadCount(options_.jobs);
    const uint64_t memory = kPassMemory + threads * kPassMemoryOfThread;
    return PassResources{threads, memory - (Multiplies() ? InputCache::kMostKept : 0), needs, mean};
  }
  const ModuleNeed largest = LargestOf(needs);
  PREPACK_TRY_ASSIGN(const unsigned threads, ThreadsFor(largest, 0));
  return PassResources{threads, largest.Of(threads), needs, mean};
}

// A folder that was made of a GGUF file has its config and tokenizer from elsewhere. Unless that is
// named, they are compared with themselves.
GgufSource Verification::SourceOptions() const {
  GgufSource source = options_.gguf;
  if (!gguf::IsGguf(*source_path_)) return source;
  if (source.like.empty()) source.like = folder_.path();
  source.dequantize = true;  // as far as it was done
  return source;
}

// The modules of the source, and those of its plain layers that were packed.
Result<QuantizedModel> Verification::ReadAsPacked(const Checkpoint& source) const {
  PREPACK_TRY_ASSIGN(QuantizedModel model, ReadSourceModel(source, folder_.manifest().accepted));
  AddPlainAsPacked(folder_.manifest(), source, model);
  return model;
}

// The largest need is computed before anything is read.
Status Verification::CheckLimit() const {
  if (options_.memory_limit == 0 || !source_path_) return {};
  // A source that cannot be read is for the levels to report.
  const Result<Checkpoint> source = OpenSource(*source_path_, SourceOptions());
  std::optional<QuantizedModel> model;
  if (Runs(Level::kExactness) && source.ok()) {
    Result<QuantizedModel> read = ReadAsPacked(*source);
    if (read.ok()) model.emplace(*std::move(read));
  }
  const uint64_t beside = kReportMemory + (StartsEngine() ? kEngineMemory : 0);
  return ThreadsFor(LargestOf(NeedsOfModules(model ? &*model : nullptr)), beside).status();
}

// This does not depend on the sample or on the levels that run.
Status Verification::ReadBars() {
  std::vector<std::string> names;
  for (const auto& [name, figure] : figures_) names.push_back(name);
  PREPACK_TRY_ASSIGN(SqnrBars bars, SqnrBars::Make(options_.min_sqnr, names));
  bars_ = std::move(bars);
  return {};
}

// Whatever the user names must exist, even if a level that needs it does not run.
Status Verification::OpenOthers() {
  source_path_ = options_.source;
  if (!source_path_) {
    source_path_ = RecordedSource(folder_);
    report_.source_found = source_path_.has_value();
  }
  if (source_path_) report_.source = source_path_->string();
  if (options_.baseline) {
    report_.baseline = options_.baseline->string();
    PREPACK_TRY_ASSIGN(Checkpoint baseline, Checkpoint::Open(*options_.baseline));
    baseline_ = std::move(baseline);
  }
  if (options_.activations) {
    report_.activations = options_.activations->string();
    PREPACK_TRY_ASSIGN(Checkpoint recorded, Checkpoint::Open(*options_.activations));
    recorded_ = std::move(recorded);
    if (recorded_->tensors().empty()) {
      return Usage(report_.activations, "the file holds no recorded activations");
    }
    for (const StoredTensor& tensor : recorded_->tensors()) {
      if (FigureFor(std::string(tensor.name)) != nullptr) continue;
      return Usage(recorded_->Where(tensor), "the packed folder has no module of this name")
          .Hint("Name recorded activations after their modules");
    }
  }
  return {};
}

Status Verification::PrepareExactness() {
  PREPACK_TRY_ASSIGN(QuantizedModel model, ReadAsPacked(*source_));
  PREPACK_TRY(FuseAsPacked(folder_.manifest(), model));
  PREPACK_TRY(SplitAsPacked(folder_.manifest(), source_->config(), model));
  CutAsPacked(folder_.manifest(), model);
  model_.emplace(std::move(model));
  exactness_.emplace(folder_, *source_, *model_, sample(), progress_);
  exactness_->Share(measured_);
  Status compared = exactness_->CompareRecords();
  if (!compared.ok()) exactness_.reset();
  return compared;
}

Status Verification::FinishExactness() {
  const Manifest& manifest = folder_.manifest();
  PREPACK_TRY_ASSIGN(LevelResult result, exactness_->Finish(ThreadCount(options_.jobs), figures_));
  JudgeDecisions(manifest, *source_, *model_, options_.strict, result);
  if (!manifest.accepted.empty()) {
    result.notes.push_back({"", "prepack.json",
                            fmt::format("the user accepted these findings in the source: {}",
                                        fmt::join(manifest.accepted.texts(), ", "))});
  }
  SetModuleStates(Level::kExactness, result, sample(), figures_);
  PREPACK_TRY(NoteWeightSizes(*model_, exactness_->weight_sizes(), measured_, result));
  level(Level::kExactness) = std::move(result);
  return {};
}

const ModuleVerification* Verification::FigureFor(const std::string& module) const {
  if (const auto own = figures_.find(module); own != figures_.end()) return &own->second;
  const auto& records = folder_.manifest().modules;
  const auto whole = std::ranges::find_if(records, [&](const auto& record) {
    return std::ranges::count(record.second.fused, module, &FusedMember::module) != 0;
  });
  return whole == records.end() ? nullptr : &figures_.at(whole->first);
}

// A sample may leave out the modules that activations were recorded for.
void Verification::NoteUnusedActivations() {
  if (!recorded_) return;
  const auto unused = std::ranges::count_if(recorded_->tensors(), [&](const StoredTensor& tensor) {
    return !FigureFor(std::string(tensor.name))->looked_at;
  });
  if (unused == 0) return;
  level(Level::kGemm)
      .notes.push_back({"", report_.activations,
                        fmt::format("{} of its {} tensors belong to modules outside the sample",
                                    unused, recorded_->tensors().size())});
}

// That the models judged alone though nobody asked for it.
void Verification::NoteMissingEngine() {
  if (engine_name_.reason.empty()) return;
  level(Level::kGemm)
      .notes.push_back({"", "oneDNN",
                        fmt::format("it did not multiply, the models of the kernels did: {}",
                                    engine_name_.reason)});
}

// oneDNN starts while the source is opened.
bool Verification::StartsEngine() const {
  const auto& modules = folder_.manifest().modules;
  const bool multiplies = std::ranges::any_of(modules, [](const auto& module) {
    const Layout* layout = FindLayout(module.second.layout);
    return layout == nullptr || !layout->checkpoint;
  });
  return source_path_ && multiplies && Runs(Level::kGemm) &&
         options_.engine != EngineChoice::kReference;
}

void Verification::StartEngine() {
  if (!StartsEngine() || measured_.merged()) {
    engine_has_started_ = true;
    return;
  }
  starting_engine_ = std::async(std::launch::async, [this] {
    auto engine = MakeOneDnnEngine();
    engine_has_started_ = true;
    return engine;
  });
}

// What multiplies here. Null if models alone do: on request, or with the reason in `name`.
std::unique_ptr<GemmEngine> Verification::TakeEngine(EngineName& name) {
  if (!starting_engine_.valid()) return nullptr;
  Result<std::unique_ptr<GemmEngine>> engine = starting_engine_.get();
  if (engine.ok()) {
    name.name = (*engine)->name();
    return *std::move(engine);
  }
  const Status& why = engine.status();
  if (options_.engine == EngineChoice::kOneDnn) {
    name.reason = why.ToString();
    return nullptr;
  }
  name.name = kModelsAlone;
  name.reason = Status(why.kind(), why.where(), why.what()).Found(why.found()).ToString();
  return nullptr;
}

// Decides whether the GEMM level runs.
Status Verification::AwaitEngine() {
  engine_name_ = {};
  engine_ = TakeEngine(engine_name_);
  if (StartsEngine()) {
    PREPACK_TRY_ASSIGN(engine_name_, EngineTogether(measured_, engine_name_));
    if (engine_name_.name.empty()) level(Level::kGemm).reason = engine_name_.reason;
  } else {
    engine_name_.name = kModelsAlone;
  }
  gemm_options_.judge_gemm = Runs(Level::kGemm) && !engine_name_.name.empty();
  gemm_options_.products.engine = engine_.get();
  return {};
}

// Everything but the engine and the threads.
ProductOptions Verification::ProductChoice() const {
  return {.engine = nullptr,
          .repack = options_.repack,
          .recorded = recorded_ ? &*recorded_ : nullptr,
          .baseline = JudgesQuality() ? &*baseline_ : nullptr,
          .sampled_weights = options_.sampled_weights,
          .inputs = inputs_.get()};
}

// A checkpoint is decoded by its own config.
Status Verification::OpenOutput() {
  const Target* target = FindTarget(folder_.manifest().target);
  if (target == nullptr || target->format.empty()) return {};
  PREPACK_TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::Open(folder_.path()));
  output_.emplace(std::move(checkpoint));
  PREPACK_TRY_ASSIGN(const SecondDecoder decoder,
                     SecondDecoder::Make(*output_, std::string(target->format)));
  output_decoder_.emplace(decoder);
  return {};
}

// Why no product is made.
void Verification::LeaveOutProducts(const std::string& reason) {
  if (Runs(Level::kGemm)) level(Level::kGemm).reason = reason;
  if (JudgesQuality()) level(Level::kQuality).reason = reason;
}

Status Verification::PrepareProducts() {
  if (exactness_ && !exactness_->SourceHoldsModules()) {
    LeaveOutProducts("the source does not hold the modules of this folder");
    return {};
  }
  if (IsPackedFolder(*source_)) {
    PREPACK_TRY_ASSIGN(PackedSource opened, PackedSource::Open(source_->path()));
    packed_source_.emplace(std::move(opened));
  }
  // A packed folder is compared in another way.
  const Result<SecondDecoder> decoder = SecondDecoder::Make(
      *source_, packed_source_ ? "compressed-tensors" : folder_.manifest().source_format);
  if (!decoder.ok()) {
    LeaveOutProducts(decoder.status().ToString());
    return {};
  }
  decoder_.emplace(*decoder);
  PREPACK_TRY(OpenOutput());
  gemm_options_ = {.products = ProductChoice(),
                   .judge_gemm = Runs(Level::kGemm),
                   .judge_quality = JudgesQuality(),
                   .sample = sample(),
                   .output = output_decoder_ ? &*output_decoder_ : nullptr,
                   .packed_source = packed_source_ ? &*packed_source_ : nullptr};
  gemm_options_.begin = [this] { return AwaitEngine(); };  // the other levels do not wait for it
  gemm_options_.is_ready = [this] { return engine_has_started_.load(); };
  gemm_.emplace(folder_, *decoder_, gemm_options_, *bars_, progress_);
  gemm_->Share(measured_);
  return {};
}

Status Verification::FinishProducts() {
  PREPACK_TRY(gemm_->Begin());
  if (!gemm_options_.judge_gemm && !gemm_options_.judge_quality) return {};
  GemmLevels levels = gemm_->Finish(figures_);
  if (gemm_options_.judge_gemm) {
    level(Level::kGemm) = std::move(levels.gemm);
    report_.engine = engine_name_.name;
    NoteMissingEngine();
  }
  if (gemm_options_.judge_quality) level(Level::kQuality) = std::move(levels.quality);
  NoteUnusedActivations();
  return {};
}

Status Verification::PrepareSource() {
  PREPACK_TRY_ASSIGN(Checkpoint source, OpenSource(*source_path_, SourceOptions()));
  source_.emplace(std::move(source));
  if (Runs(Level::kExactness)) PREPACK_TRY(PrepareExactness());
  return Multiplies() ? PrepareProducts() : Status();
}

Status Verification::FinishSource(PassFailures failures) {
  PREPACK_TRY(std::move(failures.exactness));
  if (exactness_) PREPACK_TRY(FinishExactness());
  PREPACK_TRY(std::move(failures.gemm));
  return gemm_ ? FinishProducts() : Status();
}

// A folder that is too damaged to unpack has already failed. And a checkpoint that nobody named
// need not be readable.
Status Verification::Explain(const Status& failure) {
  const bool damaged = level(Level::kIntegrity).state == LevelState::kFailed;
  if (!IsOfTheCheckpoints(failure) || !(damaged || report_.source_found)) return failure;
  const std::string reason =
      (damaged ? "the folder is damaged: "
               : "the source was found where the manifest says, but cannot be read: ") +
      failure.ToString();
  for (const Level which : kLevels) {
    if (level(which).state == LevelState::kNotRun && level(which).asked && Runs(which)) {
      level(which) = NotRun(reason);
    }
  }
  return {};
}

Status Verification::FinishIntegrity() {
  PREPACK_TRY_ASSIGN(level(Level::kIntegrity),
                     integrity_->Finish(ThreadCount(options_.jobs), figures_));
  return {};
}

Status Verification::Prepare() {
  Begin();
  PREPACK_TRY(ReadBars());
  PREPACK_TRY(OpenOthers());
  PREPACK_TRY(CheckLimit());
  StartEngine();
  if (Runs(Level::kIntegrity)) {
    integrity_.emplace(folder_, sample(), progress_);
    integrity_->Share(measured_);
  }
  if (source_path_) unreadable_ = PrepareSource();
  if (!unreadable_.ok() && !IsOfTheCheckpoints(unreadable_)) return std::move(unreadable_);
  needs_ = NeedsOfModules(model_ ? &*model_ : nullptr);
  // By then its memory is known.
  if (options_.memory_limit != 0 && starting_engine_.valid()) starting_engine_.wait();
  PREPACK_TRY_ASSIGN(const PassResources resources, Resources(needs_));
  pass_.emplace(folder_, sample(),
                PassLevels{.integrity = integrity_ ? &*integrity_ : nullptr,
                           .exactness = exactness_ ? &*exactness_ : nullptr,
                           .gemm = gemm_ ? &*gemm_ : nullptr},
                resources, progress_);
  return {};
}

Status Verification::CheckSoFar() {
  PREPACK_TRY(pass_->RunPostponed());
  PREPACK_TRY(unreadable_);
  PREPACK_TRY(pass_->failure());
  std::optional<Problem> problem = exactness_ ? exactness_->FirstProblem() : std::nullopt;
  if (!problem && gemm_) problem = gemm_->FirstProblem();
  if (!problem) return {};
  return CheckFailed(problem->where, problem->message)
      .Hint("The shards that it was made of have not been removed");
}

Status Verification::Finish() {
  PREPACK_TRY(pass_->RunRest());
  if (integrity_) PREPACK_TRY(FinishIntegrity());
  if (!source_path_) return {};
  if (unreadable_.ok()) unreadable_ = FinishSource(pass_->TakeFailures());
  return unreadable_.ok() ? Status() : Explain(unreadable_);
}

Status Verification::CompareRecordsAgain() {
  return exactness_ ? exactness_->CompareRecords() : Status();
}

Status Verification::Run() {
  PREPACK_TRY(Prepare());
  progress_.Begin("verifying", pass_->bytes());
  return Finish();
}

VerifyReport Verification::TakeReport() {
  for (auto& [name, figure] : figures_) report_.modules.push_back(std::move(figure));
  return std::move(report_);
}

Result<VerifyReport> Verify(const VerifyOptions& options, Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  if (gguf::IsGguf(options.folder)) return VerifyGguf(options, progress);
  PREPACK_TRY_ASSIGN(const PackedFolder folder, PackedFolder::Open(options.folder));
  Measurements measured;
  return VerifyWith(options, folder, measured, progress);
}

Result<VerifyReport> VerifyWith(const VerifyOptions& options, const PackedFolder& folder,
                                Measurements& measured, Progress& progress) {
  CutIntoParts(folder, measured);
  Verification verification(options, folder, measured, progress);
  PREPACK_TRY(verification.Run());
  return verification.TakeReport();
}

ModuleSample ChooseSample(const Manifest& manifest, const SampleChoice& choice) {
  using Ticket = std::pair<std::string, const std::string*>;  // hash, name
  std::map<std::string, std::vector<Ticket>> kinds;
  for (const auto& [name, record] : manifest.modules) {
    kinds[KindOfModule(record)].emplace_back(Xxh3Hex(fmt::format("{} {}", choice.seed, name)),
                                             &name);
  }
  ModuleSample sample;
  for (auto& [kind, tickets] : kinds) {
    std::ranges::sort(tickets);
    const double wanted = std::ceil(choice.fraction * static_cast<double>(tickets.size()));
    const size_t count = std::clamp<size_t>(static_cast<size_t>(wanted), 1, tickets.size());
    for (size_t i = 0; i < count; ++i) sample.insert(*tickets[i].second);
  }
  return sample;
}

}  // namespace prepack
