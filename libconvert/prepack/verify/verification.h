#pragma once

// A run of all levels over one packed folder, of verify.h or verify_conversion.h.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/gemm/engine.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/exactness.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/input_cache.h"
#include "prepack/verify/integrity.h"
#include "prepack/verify/judgement.h"
#include "prepack/verify/level_pass.h"
#include "prepack/verify/measured.h"
#include "prepack/verify/packed_source.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/verify.h"

namespace prepack {

class Verification {
 public:
  Verification(const VerifyOptions& options, const PackedFolder& folder, Measurements& measured,
               Progress& progress)
      : options_(options),
        folder_(folder),
        measured_(measured),
        progress_(progress),
        // With a limit of memory, none is kept.
        inputs_(
            std::make_unique<InputCache>(options.memory_limit == 0 ? InputCache::kMostKept : 0)) {}

  Status Run();
  VerifyReport TakeReport();

  // What Run does, for a folder that is looked at while it is made. First: whatever can fail
  // because of the command line, then what the levels need. A source that is not what it should be
  // is for Finish to report.
  Status Prepare();
  // Looks at modules and tensors. It is there from Prepare on.
  LevelPass& pass() { return *pass_; }
  uint64_t bytes() const { return pass_->bytes(); }
  // OK if all that has been looked at so far has passed, so that nobody need look at it again.
  Status CheckSoFar();
  // See Checkpoint::Reopen; while no module is looked at.
  Status ReopenSource(size_t file) { return source_ ? source_->Reopen(file) : Status(); }
  // Looks at what is left, and has the levels judge.
  Status Finish();
  // The folder has been completed: its records are compared once more.
  Status CompareRecordsAgain();

 private:
  void Begin();
  Status ReadBars();
  Status OpenOthers();
  GgufSource SourceOptions() const;
  Result<QuantizedModel> ReadAsPacked(const Checkpoint& source) const;
  Status CheckLimit() const;
  // Opens the source, and what the levels that run need of it.
  Status PrepareSource();
  Status PrepareExactness();
  Status PrepareProducts();
  void LeaveOutProducts(const std::string& reason);
  Status OpenOutput();
  // What the levels that have run say. `failures`: why they stopped.
  Status FinishIntegrity();
  Status FinishSource(PassFailures failures);
  Status FinishExactness();
  Status FinishProducts();
  // For levels that have not run because the source, or the folder, is not what it should be; any
  // other failure is returned.
  Status Explain(const Status& failure);
  // The figures of the packed module that is, or contains, a module of the source; null if there is
  // none.
  const ModuleVerification* FigureFor(const std::string& module) const;
  void NoteUnusedActivations();
  void NoteMissingEngine();
  bool StartsEngine() const;
  void StartEngine();
  std::unique_ptr<GemmEngine> TakeEngine(EngineName& name);
  Status AwaitEngine();
  bool Runs(Level level) const { return std::ranges::count(options_.skip, level) == 0; }
  bool Multiplies() const { return Runs(Level::kGemm) || JudgesQuality(); }
  ModuleNeed NeedOfModule(const std::string& name, const ModuleRecord& record,
                          const QuantizedModel* model) const;
  std::vector<ModuleNeed> NeedsOfModules(const QuantizedModel* model) const;
  Result<unsigned> ThreadsFor(const ModuleNeed& largest, uint64_t beside) const;
  Result<PassResources> Resources(std::span<const ModuleNeed> needs) const;
  ProductOptions ProductChoice() const;
  bool JudgesQuality() const { return baseline_ && Runs(Level::kQuality); }
  // The modules to look at; null: all.
  const ModuleSample* sample() const { return sample_ ? &*sample_ : nullptr; }
  LevelResult& level(Level level) { return report_.level(level); }

  const VerifyOptions& options_;
  const PackedFolder& folder_;
  Measurements& measured_;
  Progress& progress_;
  VerifyReport report_;
  ModuleFigures figures_;
  std::optional<ModuleSample> sample_;
  std::optional<SqnrBars> bars_;
  std::optional<std::filesystem::path> source_path_;
  std::optional<Checkpoint> baseline_;
  std::optional<Checkpoint> recorded_;
  std::atomic<bool> engine_has_started_ = false;  // or has failed to
  std::future<Result<std::unique_ptr<GemmEngine>>> starting_engine_;
  // Of the source, once it has been opened, and of what the levels read it with.
  std::optional<Checkpoint> source_;
  std::optional<QuantizedModel> model_;
  std::optional<PackedSource> packed_source_;
  std::optional<SecondDecoder> decoder_;
  std::unique_ptr<GemmEngine> engine_;
  EngineName engine_name_;  // of this or, in a merge, of what the parts have multiplied with
  std::optional<Checkpoint> output_;  // the folder, if it is a checkpoint
  std::optional<SecondDecoder> output_decoder_;
  GemmOptions gemm_options_;
  std::unique_ptr<InputCache> inputs_;
  // The levels; none: it does not run.
  std::optional<IntegrityCheck> integrity_;
  std::optional<ExactnessCheck> exactness_;
  std::optional<GemmCheck> gemm_;
  Status unreadable_;              // why the source cannot be read
  std::vector<ModuleNeed> needs_;  // of the modules
  std::optional<LevelPass> pass_;
};

}  // namespace prepack
