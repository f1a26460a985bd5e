#include "prepack/verify/level_pass.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"

namespace prepack {
namespace {

// Buffers for a tensor that passes through.
constexpr uint64_t kTensorMemory = uint64_t{1} << 20;

// A module or a tensor of the folder, and where it begins.
struct FolderUnit {
  std::string_view file = {};
  uint64_t offset = 0;
  bool is_module = false;
  size_t index = 0;  // in the manifest
  const std::string* name = nullptr;
  const ModuleRecord* module = nullptr;  // null: a tensor
};

// Where the first of its parts lies.
void FindStart(FolderUnit& unit) {
  bool found = false;
  for (const auto& [part, tensor] : unit.module->parts) {
    const std::pair<std::string_view, uint64_t> start(tensor.file, tensor.offset);
    if (found && std::pair(unit.file, unit.offset) <= start) continue;
    std::tie(unit.file, unit.offset) = start;
    found = true;
  }
}

std::vector<FolderUnit> UnitsOf(const Manifest& manifest, const ModuleSample* sample) {
  std::vector<FolderUnit> units;
  size_t index = 0;
  for (const auto& [name, record] : manifest.modules) {
    FolderUnit unit{.is_module = true, .index = index++, .name = &name, .module = &record};
    if (!InSample(sample, name)) continue;
    FindStart(unit);
    units.push_back(unit);
  }
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorRecord& tensor = manifest.tensors[i];
    units.push_back(
        {.file = tensor.file, .offset = tensor.offset, .index = i, .name = &tensor.tensor});
  }
  std::ranges::sort(units, {}, [](const FolderUnit& unit) {
    return std::tuple(unit.file, unit.offset, unit.is_module, unit.index);
  });
  return units;
}

// Lets threads begin what fits into the memory beside what the others do, and one of them always.
class MemoryGate {
 public:
  explicit MemoryGate(uint64_t bytes) : bytes_(bytes) {}

  void Enter(uint64_t need) {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return taken_ == 0 || need <= bytes_ - std::min(bytes_, taken_); });
    taken_ += need;
  }
  void Leave(uint64_t need) {
    {
      const std::lock_guard lock(mutex_);
      taken_ -= need;
    }
    freed_.notify_all();
  }

 private:
  const uint64_t bytes_;
  std::mutex mutex_;
  std::condition_variable freed_;
  uint64_t taken_ = 0;
};

// A stay behind the gate.
class GatePass {
 public:
  GatePass(MemoryGate& gate, uint64_t need) : gate_(gate), need_(need) { gate_.Enter(need_); }
  ~GatePass() { gate_.Leave(need_); }
  GatePass(const GatePass&) = delete;
  GatePass& operator=(const GatePass&) = delete;

 private:
  MemoryGate& gate_;
  uint64_t need_;
};

// Where a level failed first.
class FirstFailure {
 public:
  // Is a unit still to be looked at? All in front of the first failure are, whatever the timing.
  bool IsBehind(size_t unit) {
    const std::lock_guard lock(mutex_);
    return unit < unit_;
  }
  void Note(size_t unit, Status status) {
    const std::lock_guard lock(mutex_);
    if (unit >= unit_) return;
    unit_ = unit;
    status_ = std::move(status);
  }
  Status Take() { return std::move(status_); }

 private:
  std::mutex mutex_;
  size_t unit_ = std::numeric_limits<size_t>::max();
  Status status_;
};

class LevelPass {
 public:
  LevelPass(const PackedFolder& folder, const ModuleSample* sample, const PassLevels& levels,
            const PassResources& resources, Progress& progress)
      : folder_(folder),
        sample_(sample),
        levels_(levels),
        resources_(resources),
        progress_(progress),
        units_(UnitsOf(folder.manifest(), sample)),
        gate_(resources.memory) {}

  Status Run();
  PassFailures TakeFailures() { return {.exactness = exactness_.Take(), .gemm = gemm_.Take()}; }

 private:
  Status RunUnit(size_t number);
  Status RunModule(size_t number, const FolderUnit& unit);
  Status RunTensor(size_t number, const FolderUnit& unit);

  const PackedFolder& folder_;
  const ModuleSample* sample_;
  const PassLevels& levels_;
  const PassResources& resources_;
  Progress& progress_;
  std::vector<FolderUnit> units_;
  size_t modules_ = 0;
  MemoryGate gate_;
  FirstFailure exactness_;
  FirstFailure gemm_;
};

Status LevelPass::Run() {
  modules_ = static_cast<size_t>(std::ranges::count(units_, true, &FolderUnit::is_module));
  return ParallelFor(units_.size(), resources_.threads,
                     [&](size_t number, unsigned) { return RunUnit(number); });
}

Status LevelPass::RunUnit(size_t number) {
  if (CancellationRequested()) return Interrupted(folder_.path().string());
  const FolderUnit& unit = units_[number];
  progress_.BeginItem(*unit.name);
  return unit.is_module ? RunModule(number, unit) : RunTensor(number, unit);
}

// Notes a failure that is of the checkpoints; hands on any other.
Status NoteOrReturn(size_t number, Status status, FirstFailure& failure) {
  if (status.ok() || !IsOfTheCheckpoints(status)) return status;
  failure.Note(number, std::move(status));
  return {};
}

Status LevelPass::RunModule(size_t number, const FolderUnit& unit) {
  const ModuleShare share = ShareOf(resources_.needs[unit.index], resources_, modules_);
  const GatePass pass(gate_, share.memory);
  if (levels_.integrity != nullptr) {
    for (const auto& [part, tensor] : unit.module->parts) levels_.integrity->Hash(tensor);
  }
  if (levels_.exactness != nullptr && exactness_.IsBehind(number)) {
    PREPACK_TRY(NoteOrReturn(number, levels_.exactness->CompareModule(unit.index, share.threads),
                             exactness_));
  }
  if (levels_.gemm == nullptr || !exactness_.IsBehind(number) || !gemm_.IsBehind(number)) return {};
  return NoteOrReturn(number, levels_.gemm->Multiply(unit.index, share.threads), gemm_);
}

Status LevelPass::RunTensor(size_t number, const FolderUnit& unit) {
  const GatePass pass(gate_, kTensorMemory);
  if (levels_.integrity != nullptr && sample_ == nullptr) {
    levels_.integrity->Hash(folder_.manifest().tensors[unit.index]);
  }
  if (levels_.exactness == nullptr || !exactness_.IsBehind(number)) return {};
  return NoteOrReturn(number, levels_.exactness->CompareTensor(unit.index), exactness_);
}

}  // namespace

bool IsOfTheCheckpoints(const Status& status) {
  return status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported;
}

ModuleShare ShareOf(const ModuleNeed& need, const PassResources& resources, size_t modules) {
  for (auto beside = static_cast<unsigned>(std::min<size_t>(resources.threads, modules));
       beside > 1; --beside) {
    const auto threads = static_cast<unsigned>(CeilDiv(resources.threads, beside));
    if (need.Of(threads) <= resources.memory / beside) return {threads, need.Of(threads)};
  }
  return {resources.threads, need.Of(resources.threads)};
}

Result<PassFailures> RunLevels(const PackedFolder& folder, const ModuleSample* sample,
                               const PassLevels& levels, const PassResources& resources,
                               Progress& progress) {
  const uint64_t total = (levels.integrity != nullptr ? levels.integrity->bytes() : 0) +
                         (levels.exactness != nullptr ? levels.exactness->bytes() : 0) +
                         (levels.gemm != nullptr ? levels.gemm->weights() : 0);
  progress.Begin("verifying", total);
  LevelPass pass(folder, sample, levels, resources, progress);
  PREPACK_TRY(pass.Run());
  return pass.TakeFailures();
}

}  // namespace prepack
