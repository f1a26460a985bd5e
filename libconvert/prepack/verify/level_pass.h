#pragma once

// The pass that verify makes over a packed folder: module by module and tensor by tensor, in the
// order in which they lie there. Each goes through all levels before the next one, so that its
// bytes come from the disk once: what the first level reads, the others find in the page cache. The
// levels know nothing of each other; only their order is here.
//
// Modules run side by side, one thread each, as long as their memory fits into the budget. Those
// that are too large for that get several threads.
//
// oneDNN may still be starting when the first modules come to their products. These are then made a
// little later, and their bytes are taken from the page cache once more.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/io/memory_limit.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/exactness.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/integrity.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Null: the level does not run.
struct PassLevels {
  IntegrityCheck* integrity = nullptr;
  ExactnessCheck* exactness = nullptr;
  GemmCheck* gemm = nullptr;
};

// What the levels take for a module, one after the other.
struct ModuleNeed {
  MemoryNeed compared;
  MemoryNeed multiplied;

  uint64_t Of(unsigned threads) const {
    return std::max(compared.shared + threads * compared.per_thread,
                    multiplied.shared + threads * multiplied.per_thread);
  }
};

// What a pass may use.
struct PassResources {
  unsigned threads = 1;
  uint64_t memory = 0;                     // bytes, for all modules that are looked at at a time
  std::span<const ModuleNeed> needs = {};  // of each module of the manifest
  uint64_t mean_need = UINT64_MAX;         // of a module on one thread
};

// How a module is worked on.
struct ModuleShare {
  unsigned threads = 1;
  uint64_t memory = 0;
};

// As few threads for one module as keep all threads busy, as far as memory allows: a large module
// has others beside it that take what modules take in the mean. `modules`: how many there are in
// all.
ModuleShare ShareOf(const ModuleNeed& need, const PassResources& resources, size_t modules);

// Why levels stopped early: the first failure, by the order of the manifest, that is of the folder
// or of the source. Integrity does not stop.
struct PassFailures {
  Status exactness;
  Status gemm;
};

// Where a level failed first.
class FirstFailure {
 public:
  // Is a unit still to be looked at? All in front of the first failure are, whatever the timing.
  bool IsBehind(size_t unit);
  // Notes a failure that is of the checkpoints, and hands on any other.
  Status NoteOrReturn(size_t unit, Status status);
  Status Take() { return std::move(status_); }
  const Status& status() const { return status_; }  // while no thread notes any

 private:
  std::mutex mutex_;
  size_t unit_ = std::numeric_limits<size_t>::max();
  Status status_;
};

// Lets threads begin what fits into the memory beside what the others do, and one of them always;
// in the order in which they come, or small modules would keep a large one waiting to the end.
class MemoryGate {
 public:
  explicit MemoryGate(uint64_t bytes) : bytes_(bytes) {}

  void Enter(uint64_t need);
  void Leave(uint64_t need);
  // How many threads have come and not entered.
  uint64_t waiting() const;

 private:
  const uint64_t bytes_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t taken_ = 0;
  uint64_t came_ = 0;     // threads so far
  uint64_t entered_ = 0;  // of these
};

// Modules whose products have to wait, in the order in which they came: so few that the page cache
// still has their bytes.
class PostponedModules {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{256} << 20;

  // False: there are too many already.
  bool Add(size_t module, uint64_t bytes);
  // The next one, once.
  std::optional<size_t> Take();
  size_t count() const;

 private:
  mutable std::mutex mutex_;
  std::deque<size_t> modules_;
  uint64_t bytes_ = 0;  // of all that ever came
};

class LevelPass {
 public:
  // All arguments but the resources must outlive it, and so must the needs among these. With a
  // sample (null: every module), only its modules are looked at, and tensors only by what the
  // manifest says of them.
  LevelPass(const PackedFolder& folder, const ModuleSample* sample, const PassLevels& levels,
            const PassResources& resources, Progress& progress);

  // How much there is to do, for the progress: bytes that are read, and weights that are
  // multiplied.
  uint64_t bytes() const;

  // Looks at a module, or at a tensor that passes through, by its number in the manifest. From any
  // thread, each once. Failures of the checkpoints are noted; any other ends the pass.
  Status RunModule(size_t index, unsigned threads);
  // As many threads as it gets where all modules are looked at.
  Status RunModule(size_t index) { return RunModule(index, ThreadsOf(index, modules_.size())); }
  Status RunTensor(size_t index);
  // Then: looks at all that have not been looked at, in the order of the folder.
  Status RunRest();
  // The products that were put off.
  Status RunPostponed();
  // The first failure so far.
  Status failure() const { return exactness_.status().ok() ? gemm_.status() : exactness_.status(); }
  PassFailures TakeFailures() { return {.exactness = exactness_.Take(), .gemm = gemm_.Take()}; }

 private:
  struct Module {
    const std::string* name = nullptr;
    const ModuleRecord* record = nullptr;
  };
  struct Unit;  // of what is left

  unsigned ThreadsOf(size_t index, size_t modules) const {
    return ShareOf(resources_.needs[index], resources_, modules).threads;
  }
  std::vector<Unit> UnitsLeft() const;
  void MapModule(size_t index) const;
  Status Multiply(size_t index, unsigned threads);
  // Unless the products can be made at once, and if so many may wait.
  bool Postpone(size_t index);
  Status RunPostponed(size_t index);
  Status RunReadyOnes();

  const PackedFolder& folder_;
  const ModuleSample* sample_;
  PassLevels levels_;
  PassResources resources_;
  Progress& progress_;
  std::vector<Module> modules_;  // in the order of the manifest
  std::vector<uint8_t> modules_done_;
  std::vector<uint8_t> tensors_done_;
  MemoryGate gate_;
  FirstFailure exactness_;
  FirstFailure gemm_;
  PostponedModules postponed_;
};

// The folder, or the source, is not what it should be; other errors end a verification.
bool IsOfTheCheckpoints(const Status& status);

}  // namespace prepack
