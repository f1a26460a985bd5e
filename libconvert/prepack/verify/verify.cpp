// Runs the levels in their order, and decides what a level that cannot run says instead. Everything
// that can fail because of the command line is checked before any level reads data, so that a long
// run does not end with a usage error.

#include "prepack/verify/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/hash.h"
#include "prepack/base/isa.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/gemm/engine.h"
#include "prepack/io/memory_limit.h"
#include "prepack/layouts/table.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/node_shares.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/split_experts.h"
#include "prepack/verify/exactness.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/integrity.h"
#include "prepack/verify/judgement.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {
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
constexpr uint64_t kProductOverhead = uint64_t{8} << 20;
// What is known about the modules at the end, but not at the start.
constexpr uint64_t kReportMemory = uint64_t{8} << 20;

LevelResult NotRun(std::string reason) {
  return {.state = LevelState::kNotRun, .reason = std::move(reason)};
}

// A run of all levels over one folder.
class Verification {
 public:
  Verification(const VerifyOptions& options, const PackedFolder& folder, Progress& progress)
      : options_(options), folder_(folder), progress_(progress) {}

  Status Run();
  VerifyReport TakeReport();

 private:
  void Begin();
  Status RunIntegrity();
  Status ReadBars();
  Status OpenOthers();
  Status RunSourceLevels();
  Status RunExactness(const Checkpoint& source);
  Status OpenOutput();
  Status RunProducts(const Checkpoint& source);
  // The figures of the packed module that is, or contains, a module of the source; null if there is
  // none.
  const ModuleVerification* FigureFor(const std::string& module) const;
  void NoteUnusedActivations();
  bool StartsEngine() const;
  void StartEngine();
  void ForModules(const FunctionRef<void(const PackedModule&)>& visit) const;
  std::unique_ptr<GemmEngine> TakeEngine();
  bool Runs(Level level) const { return std::ranges::count(options_.skip, level) == 0; }
  // Threads for a level, considering the memory that is in use by then.
  Result<unsigned> Threads(const MemoryNeed& need) const;
  MemoryNeed NeedOfExactness(const QuantizedModel& model) const;
  MemoryNeed NeedOfProducts(const ProductOptions& options) const;
  Status CheckLimit() const;
  ProductOptions ProductChoice() const;
  bool JudgesQuality() const { return baseline_ && Runs(Level::kQuality); }
  // The modules to look at; null: all.
  const ModuleSample* sample() const { return sample_ ? &*sample_ : nullptr; }
  LevelResult& level(Level level) { return report_.level(level); }

  const VerifyOptions& options_;
  const PackedFolder& folder_;
  Progress& progress_;
  VerifyReport report_;
  ModuleFigures figures_;
  std::optional<ModuleSample> sample_;
  std::optional<SqnrBars> bars_;
  std::optional<std::filesystem::path> source_;
  std::optional<Checkpoint> baseline_;
  std::optional<Checkpoint> recorded_;
  std::future<Result<std::unique_ptr<GemmEngine>>> engine_;
  std::optional<Checkpoint> output_;  // the folder, if it is a checkpoint
  std::optional<SecondDecoder> output_decoder_;
};

// What every level says until it has run.
void Verification::Begin() {
  figures_ = EmptyFigures(folder_.manifest());
  report_.folder = options_.folder.string();
  report_.target = folder_.manifest().target;
  for (const Level level : kLevels) {
    report_.level(level) = NotRun(
        "this level needs the source checkpoint, which is not where the manifest says: give it "
        "with --source");
  }
  if (!options_.baseline) {
    level(Level::kQuality) = NotRun("no unquantized model was given (--baseline)");
    level(Level::kQuality).asked = false;
  }
  for (const Level skipped : options_.skip) {
    level(skipped).reason = fmt::format("skipped on request (--skip {})", LevelName(skipped));
  }
  if (!options_.sample) return;
  sample_ = ChooseSample(folder_.manifest(), *options_.sample);
  report_.sample = Sample{.fraction = options_.sample->fraction,
                          .seed = options_.sample->seed,
                          .modules = sample_->size()};
  for (auto& [name, figure] : figures_) figure.looked_at = sample_->contains(name);
}

Result<unsigned> Verification::Threads(const MemoryNeed& need) const {
  return ThreadsWithin(need, options_.jobs, options_.memory_limit, "verified");
}

MemoryNeed Verification::NeedOfExactness(const QuantizedModel& model) const {
  MemoryNeed need{.shared = 0, .per_thread = kReadingMemory};
  ForModules([&](const PackedModule& packed) {
    const QuantizedLinear* linear = model.Find(packed.name());
    if (linear == nullptr || linear->n() != packed.request().n) return;
    need.per_thread = std::max(need.per_thread, MemoryOfComparison(packed, *linear));
  });
  return need;
}

MemoryNeed Verification::NeedOfProducts(const ProductOptions& options) const {
  MemoryNeed need;
  ForModules([&](const PackedModule& packed) {
    const MemoryNeed own = MemoryOfProducts(packed, options);
    need.shared = std::max(need.shared, own.shared);
    need.per_thread = std::max(need.per_thread, own.per_thread);
  });
  need.shared += kProductOverhead;
  return need;
}

// With a limit; modules that cannot be opened are for the levels to report.
void Verification::ForModules(const FunctionRef<void(const PackedModule&)>& visit) const {
  if (options_.memory_limit == 0) return;
  for (const auto& [name, record] : folder_.manifest().modules) {
    if (!InSample(sample(), name)) continue;
    const Result<PackedModule> packed = PackedModule::Open(folder_, name, record);
    if (packed.ok()) visit(*packed);
  }
}

// The largest need is computed before anything is read.
Status Verification::CheckLimit() const {
  if (options_.memory_limit == 0 || !source_) return {};
  MemoryNeed need;
  if (Runs(Level::kGemm) || JudgesQuality()) need = NeedOfProducts(ProductChoice());
  // A source that cannot be read is for the levels to report.
  const Result<Checkpoint> source = Checkpoint::Open(*source_);
  if (Runs(Level::kExactness) && source.ok()) {
    const Result<QuantizedModel> model = ReadSourceModel(*source, folder_.manifest().accepted);
    const MemoryNeed other = model.ok() ? NeedOfExactness(*model) : MemoryNeed();
    if (other.shared + other.per_thread > need.shared + need.per_thread) need = other;
  }
  need.shared += kReportMemory + (StartsEngine() ? kEngineMemory : 0);
  return Threads(need).status();
}

Status Verification::RunIntegrity() {
  PREPACK_TRY_ASSIGN(const unsigned threads, Threads({.shared = 0, .per_thread = kReadingMemory}));
  PREPACK_TRY_ASSIGN(LevelResult integrity,
                     CheckIntegrity(folder_, sample(), threads, progress_, figures_));
  level(Level::kIntegrity) = std::move(integrity);
  return {};
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
  source_ = options_.source;
  if (!source_) {
    source_ = RecordedSource(folder_);
    report_.source_found = source_.has_value();
  }
  if (source_) report_.source = source_->string();
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
      if (FigureFor(tensor.name) != nullptr) continue;
      return Usage(recorded_->Where(tensor), "the packed folder has no module of this name")
          .Hint("Name recorded activations after their modules");
    }
  }
  return {};
}

Status Verification::RunExactness(const Checkpoint& source) {
  const AcceptedFindings& accepted = folder_.manifest().accepted;
  PREPACK_TRY_ASSIGN(QuantizedModel model, ReadSourceModel(source, accepted));
  PREPACK_TRY(FuseAsPacked(folder_.manifest(), model));
  PREPACK_TRY(SplitAsPacked(folder_.manifest(), source.config(), model));
  CutAsPacked(folder_.manifest(), model);
  // By then its memory is known.
  if (options_.memory_limit != 0 && engine_.valid()) engine_.wait();
  PREPACK_TRY_ASSIGN(const unsigned threads, Threads(NeedOfExactness(model)));
  PREPACK_TRY_ASSIGN(LevelResult exactness, CheckExactness(folder_, source, model, sample(),
                                                           threads, progress_, figures_));
  LevelResult& result = level(Level::kExactness);
  result = std::move(exactness);
  JudgeDecisions(folder_.manifest(), source, model, options_.strict, result);
  if (!accepted.empty()) {
    result.notes.push_back({"", "prepack.json",
                            fmt::format("the user accepted these findings in the source: {}",
                                        fmt::join(accepted.texts(), ", "))});
  }
  SetModuleStates(Level::kExactness, result, sample(), figures_);
  return NoteWeightSizes(model, result);
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
    return !FigureFor(tensor.name)->looked_at;
  });
  if (unused == 0) return;
  level(Level::kGemm)
      .notes.push_back({"", report_.activations,
                        fmt::format("{} of its {} tensors belong to modules outside the sample",
                                    unused, recorded_->tensors().size())});
}

// oneDNN takes as long to start as the preceding levels take for a large module, so it starts while
// they run.
bool Verification::StartsEngine() const {
  const auto& modules = folder_.manifest().modules;
  const bool multiplies = std::ranges::any_of(modules, [](const auto& module) {
    const Layout* layout = FindLayout(module.second.layout);
    return layout == nullptr || !layout->checkpoint;
  });
  return source_ && multiplies && Runs(Level::kGemm) && options_.engine != EngineChoice::kReference;
}

void Verification::StartEngine() {
  if (!StartsEngine()) return;
  engine_ = std::async(std::launch::async, [] { return MakeOneDnnEngine(); });
}

// Null if only models multiply, either on request or because the GEMM level does not run; in that
// case this sets the level's reason.
std::unique_ptr<GemmEngine> Verification::TakeEngine() {
  if (!engine_.valid()) return nullptr;
  Result<std::unique_ptr<GemmEngine>> engine = engine_.get();
  if (engine.ok()) return *std::move(engine);
  level(Level::kGemm).reason = engine.status().ToString();
  return nullptr;
}

// Everything but the engine and the threads.
ProductOptions Verification::ProductChoice() const {
  return {.engine = nullptr,
          .repack = options_.repack,
          .recorded = recorded_ ? &*recorded_ : nullptr,
          .baseline = JudgesQuality() ? &*baseline_ : nullptr,
          .sampled_weights = options_.sampled_weights};
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

Status Verification::RunProducts(const Checkpoint& source) {
  const bool quality = JudgesQuality();
  if (!Runs(Level::kGemm) && !quality) return {};
  std::optional<PackedSource> packed_source;
  if (IsPackedFolder(source)) {
    PREPACK_TRY_ASSIGN(PackedSource opened, PackedSource::Open(source.path()));
    packed_source.emplace(std::move(opened));
  }
  // A packed folder is compared in another way.
  const Result<SecondDecoder> decoder = SecondDecoder::Make(
      source, packed_source ? "compressed-tensors" : folder_.manifest().source_format);
  if (!decoder.ok()) {
    if (Runs(Level::kGemm)) level(Level::kGemm).reason = decoder.status().ToString();
    if (quality) level(Level::kQuality).reason = decoder.status().ToString();
    return {};
  }
  PREPACK_TRY(OpenOutput());
  const std::unique_ptr<GemmEngine> engine = TakeEngine();
  const bool needs_engine = StartsEngine();
  const bool gemm = Runs(Level::kGemm) && (engine || !needs_engine);
  if (!gemm && !quality) return {};
  ProductOptions products = ProductChoice();
  products.engine = engine.get();
  PREPACK_TRY_ASSIGN(const unsigned threads, Threads(NeedOfProducts(products)));
  products.threads = threads;
  const GemmCheck check{.products = products,
                        .judge_gemm = gemm,
                        .judge_quality = quality,
                        .sample = sample(),
                        .output = output_decoder_ ? &*output_decoder_ : nullptr,
                        .packed_source = packed_source ? &*packed_source : nullptr};
  PREPACK_TRY_ASSIGN(GemmLevels levels,
                     CheckGemm(folder_, *decoder, check, *bars_, progress_, figures_));
  if (gemm) {
    level(Level::kGemm) = std::move(levels.gemm);
    report_.engine = engine ? engine->name() : "reference";
  }
  if (quality) level(Level::kQuality) = std::move(levels.quality);
  NoteUnusedActivations();
  return {};
}

// The levels that need the source.
Status Verification::RunSourceLevels() {
  PREPACK_TRY_ASSIGN(const Checkpoint source, Checkpoint::Open(*source_));
  if (Runs(Level::kExactness)) {
    PREPACK_TRY(RunExactness(source));
    for (const auto& [name, figure] : figures_) {
      if (figure.exact.has_value() || !figure.looked_at) continue;
      for (const Level level : {Level::kGemm, Level::kQuality}) {
        if (Runs(level)) {
          report_.level(level).reason = "the source does not hold the modules of this folder";
        }
      }
      return {};
    }
  }
  return RunProducts(source);
}

Status Verification::Run() {
  Begin();
  Status status = ReadBars();
  if (status.ok()) status = OpenOthers();
  if (status.ok()) status = CheckLimit();
  if (status.ok()) StartEngine();
  if (status.ok() && Runs(Level::kIntegrity)) status = RunIntegrity();
  if (!status.ok() || !source_) return status;
  status = RunSourceLevels();
  if (status.ok()) return {};
  // A folder that is too damaged to unpack has already failed. And a checkpoint that nobody named
  // need not be readable.
  const bool of_the_folder =
      status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported;
  const bool damaged = level(Level::kIntegrity).state == LevelState::kFailed;
  if (!of_the_folder || !(damaged || report_.source_found)) return status;
  const std::string reason =
      (damaged ? "the folder is damaged: "
               : "the source was found where the manifest says, but cannot be read: ") +
      status.ToString();
  for (const Level which : kLevels) {
    if (level(which).state == LevelState::kNotRun && level(which).asked && Runs(which)) {
      level(which) = NotRun(reason);
    }
  }
  return {};
}

VerifyReport Verification::TakeReport() {
  for (auto& [name, figure] : figures_) report_.modules.push_back(std::move(figure));
  return std::move(report_);
}

}  // namespace

Result<VerifyReport> Verify(const VerifyOptions& options, Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY_ASSIGN(const PackedFolder folder, PackedFolder::Open(options.folder));
  Verification verification(options, folder, progress);
  PREPACK_TRY(verification.Run());
  return verification.TakeReport();
}

ModuleSample ChooseSample(const Manifest& manifest, const SampleChoice& choice) {
  using Ticket = std::pair<std::string, const std::string*>;  // hash, name
  std::map<std::string, std::vector<Ticket>> kinds;
  for (const auto& [name, record] : manifest.modules) {
    const std::string kind = fmt::format("{} {} {} {}", record.layout, record.n, record.k,
                                         DescribeScheme(record.scheme));
    kinds[kind].emplace_back(Xxh3Hex(fmt::format("{} {}", choice.seed, name)), &name);
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
