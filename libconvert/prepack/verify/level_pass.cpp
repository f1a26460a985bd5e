#include "prepack/verify/level_pass.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"

namespace prepack {
namespace {

// Buffers for a tensor that passes through.
constexpr uint64_t kTensorMemory = uint64_t{1} << 20;

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

}  // namespace

bool IsOfTheCheckpoints(const Status& status) {
  return status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported;
}

ModuleShare ShareOf(const ModuleNeed& need, const PassResources& resources, size_t modules) {
  for (auto beside = static_cast<unsigned>(std::min<size_t>(resources.threads, modules));
       beside > 1; --beside) {
    const auto threads = static_cast<unsigned>(CeilDiv(resources.threads, beside));
    const uint64_t own = need.Of(threads);
    const uint64_t other = std::min(own, resources.mean_need);
    if (own > resources.memory) continue;
    if (other <= (resources.memory - own) / (beside - 1)) return {threads, own};
  }
  return {resources.threads, need.Of(resources.threads)};
}

bool FirstFailure::IsBehind(size_t unit) {
  const std::lock_guard lock(mutex_);
  return unit < unit_;
}

Status FirstFailure::NoteOrReturn(size_t unit, Status status) {
  if (status.ok() || !IsOfTheCheckpoints(status)) return status;
  const std::lock_guard lock(mutex_);
  if (unit >= unit_) return {};
  unit_ = unit;
  status_ = std::move(status);
  return {};
}

void MemoryGate::Enter(uint64_t need) {
  std::unique_lock lock(mutex_);
  const uint64_t turn = came_++;
  changed_.wait(lock, [&] {
    return turn == entered_ && (taken_ == 0 || need <= bytes_ - std::min(bytes_, taken_));
  });
  taken_ += need;
  ++entered_;
  changed_.notify_all();
}

void MemoryGate::Leave(uint64_t need) {
  {
    const std::lock_guard lock(mutex_);
    taken_ -= need;
  }
  changed_.notify_all();
}

uint64_t MemoryGate::waiting() const {
  const std::lock_guard lock(mutex_);
  return came_ - entered_;
}

LevelPass::LevelPass(const PackedFolder& folder, const ModuleSample* sample,
                     const PassLevels& levels, const PassResources& resources, Progress& progress)
    : folder_(folder),
      sample_(sample),
      levels_(levels),
      resources_(resources),
      progress_(progress),
      modules_done_(folder.manifest().modules.size()),
      tensors_done_(folder.manifest().tensors.size()),
      gate_(resources.memory) {
  for (const auto& [name, record] : folder.manifest().modules) {
    modules_.push_back({.name = &name, .record = &record});
  }
}

uint64_t LevelPass::bytes() const {
  return (levels_.integrity != nullptr ? levels_.integrity->bytes() : 0) +
         (levels_.exactness != nullptr ? levels_.exactness->bytes() : 0) +
         (levels_.gemm != nullptr ? levels_.gemm->weights() : 0);
}

bool PostponedModules::Add(size_t module, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > kMostBytes - bytes_) return false;
  bytes_ += bytes;
  modules_.push_back(module);
  return true;
}

std::optional<size_t> PostponedModules::Take() {
  const std::lock_guard lock(mutex_);
  if (modules_.empty()) return std::nullopt;
  const size_t module = modules_.front();
  modules_.pop_front();
  return module;
}

size_t PostponedModules::count() const {
  const std::lock_guard lock(mutex_);
  return modules_.size();
}

Status LevelPass::RunModule(size_t index, unsigned threads) {
  PREPACK_TRY(RunReadyOnes());
  const GatePass pass(gate_, resources_.needs[index].Of(threads));
  modules_done_[index] = 1;
  MapModule(index);
  if (levels_.integrity != nullptr) {
    for (const auto& [part, tensor] : modules_[index].record->parts) {
      levels_.integrity->Hash(tensor);
    }
  }
  if (levels_.exactness != nullptr && exactness_.IsBehind(index)) {
    PREPACK_TRY(exactness_.NoteOrReturn(index, levels_.exactness->CompareModule(index, threads)));
  }
  if (levels_.gemm == nullptr || Postpone(index)) return {};
  return Multiply(index, threads);
}

// Every level reads all of it, so that mapping it piece by piece would be done three times.
void LevelPass::MapModule(size_t index) const {
  for (const auto& [part, tensor] : modules_[index].record->parts) folder_.MapTogether(tensor);
  if (levels_.exactness != nullptr) levels_.exactness->MapSource(index);
}

Status LevelPass::Multiply(size_t index, unsigned threads) {
  if (!exactness_.IsBehind(index) || !gemm_.IsBehind(index)) return {};
  return gemm_.NoteOrReturn(index, levels_.gemm->Multiply(index, threads));
}

bool LevelPass::Postpone(size_t index) {
  if (levels_.gemm->IsReady()) return false;
  uint64_t bytes = 0;
  for (const auto& [part, tensor] : modules_[index].record->parts) bytes += tensor.bytes();
  return postponed_.Add(index, bytes);
}

Status LevelPass::RunPostponed(size_t index) {
  const unsigned threads = ThreadsOf(index, modules_.size());
  const GatePass pass(gate_, resources_.needs[index].Of(threads));
  return Multiply(index, threads);
}

// The products that were postponed, as soon as they can be made.
Status LevelPass::RunReadyOnes() {
  if (levels_.gemm == nullptr || !levels_.gemm->IsReady()) return {};
  while (const std::optional<size_t> index = postponed_.Take()) {
    if (CancellationRequested()) return Interrupted(folder_.path().string());
    PREPACK_TRY(RunPostponed(*index));
  }
  return {};
}

Status LevelPass::RunTensor(size_t index) {
  const GatePass pass(gate_, kTensorMemory);
  tensors_done_[index] = 1;
  if (levels_.integrity != nullptr && sample_ == nullptr) {
    levels_.integrity->Hash(folder_.manifest().tensors[index]);
  }
  const size_t number = modules_.size() + index;
  if (levels_.exactness == nullptr || !exactness_.IsBehind(number)) return {};
  return exactness_.NoteOrReturn(number, levels_.exactness->CompareTensor(index));
}

// A module or a tensor of the folder, and where it begins.
struct LevelPass::Unit {
  std::string_view file = {};
  uint64_t offset = 0;
  bool is_module = false;
  size_t index = 0;    // in the manifest
  size_t modules = 0;  // from this one on
};

std::vector<LevelPass::Unit> LevelPass::UnitsLeft() const {
  const auto place = [](const Unit& unit) {
    return std::tuple(unit.file, unit.offset, unit.is_module, unit.index);
  };
  std::vector<Unit> units;
  for (size_t i = 0; i < modules_.size(); ++i) {
    if (modules_done_[i] != 0 || !InSample(sample_, *modules_[i].name)) continue;
    Unit first{.is_module = true, .index = i};
    bool found = false;
    for (const auto& [part, tensor] : modules_[i].record->parts) {
      const Unit start{tensor.file, tensor.offset, true, i};
      if (!found || place(start) < place(first)) first = start;
      found = true;
    }
    units.push_back(first);
  }
  const std::vector<TensorRecord>& tensors = folder_.manifest().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors_done_[i] == 0) units.push_back({tensors[i].file, tensors[i].offset, false, i});
  }
  std::ranges::sort(units, {}, place);
  auto modules = static_cast<size_t>(std::ranges::count(units, true, &Unit::is_module));
  for (Unit& unit : units) {
    unit.modules = modules;
    if (unit.is_module) --modules;
  }
  return units;
}

Status LevelPass::RunRest() {
  const std::vector<Unit> units = UnitsLeft();
  const auto run = [&](size_t number, unsigned) -> Status {
    if (CancellationRequested()) return Interrupted(folder_.path().string());
    const Unit& unit = units[number];
    if (!unit.is_module) {
      progress_.BeginItem(folder_.manifest().tensors[unit.index].tensor);
      return RunTensor(unit.index);
    }
    progress_.BeginItem(*modules_[unit.index].name);
    // The last ones get more threads, so that none waits for the end of one.
    return RunModule(unit.index, ThreadsOf(unit.index, unit.modules));
  };
  PREPACK_TRY(ParallelFor(units.size(), resources_.threads, run));
  return RunPostponed();
}

Status LevelPass::RunPostponed() {
  return ParallelFor(postponed_.count(), resources_.threads, [&](size_t, unsigned) -> Status {
    if (CancellationRequested()) return Interrupted(folder_.path().string());
    const std::optional<size_t> index = postponed_.Take();
    return index ? RunPostponed(*index) : Status();
  });
}

}  // namespace prepack
