#include "convert/shard_filler.h"

#include <utility>

#include "base/cancellation.h"
#include "base/parallel.h"
#include "convert/output_hash.h"

namespace prepack {
namespace {

constexpr uint64_t kCopyBytes = 128ULL * 1024;  // stays in the L2 cache between read and write

}  // namespace

ShardFiller::ShardFiller(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
                         std::vector<SafetensorsWriter>& writers, const FinishedUnits& finished,
                         Journal& journal, Isa isa, Progress& progress)
    : checkpoint_(checkpoint),
      plan_(plan),
      shards_(shards),
      writers_(writers),
      journal_(journal),
      isa_(isa),
      progress_(progress) {
  for (const SafetensorsWriter& writer : writers) {
    output_hashes_.emplace_back(writer.header().tensors.size());
  }
  for (size_t i = 0; i < shards.units.size(); ++i) AddUnit(i, finished);
}

void ShardFiller::AddTasks(TaskKind kind, size_t unit, uint64_t total, uint64_t step) {
  units_[unit].unfinished += work_.Add(kind, unit, total, step);
}

// Experts that are stacked share their tensors: the first of them has them hashed.
void ShardFiller::AddSources(size_t index, UnitState& state) {
  const OutputUnit& unit = shards_.units[index];
  const auto add = [&](const StoredTensor* tensor) {
    if (tensor != nullptr && source_hashes_.emplace(tensor->name, "").second) {
      state.sources.push_back(tensor);
    }
  };
  if (unit.copied != nullptr) {
    add(unit.copied);
  } else {
    for (const std::string& name : plan_.modules[unit.module].ReplacedTensors()) {
      add(checkpoint_.Find(name));
    }
  }
  state.source_hashes.resize(state.sources.size());
}

// False when it does not fit: then the unit is done again.
bool ShardFiller::TakeFinished(size_t index, const FinishedUnit& finished) {
  const OutputUnit& unit = shards_.units[index];
  UnitState& state = units_[index];
  if (finished.outputs.size() != unit.slots.size() ||
      finished.sources.size() != state.sources.size()) {
    return false;
  }
  for (size_t i = 0; i < unit.slots.size(); ++i) {
    output_hashes_[unit.slots[i].shard][unit.slots[i].index] = finished.outputs[i];
  }
  state.source_hashes = finished.sources;
  state.rounded_scales = finished.rounded_scales;
  return true;
}

void ShardFiller::AddUnit(size_t index, const FinishedUnits& finished) {
  const OutputUnit& unit = shards_.units[index];
  UnitState& state = units_.emplace_back();
  AddSources(index, state);
  const auto done = finished.find(index);
  if (done != finished.end() && TakeFinished(index, done->second)) return;
  if (unit.copied != nullptr) {
    AddTasks(TaskKind::kCopy, index, unit.copied->bytes, kCopyBytes);
    AddTasks(TaskKind::kSourceHash, index, state.sources.size(), 1);
    return;
  }
  state.packer.emplace(checkpoint_, plan_.modules[unit.module], unit, writers_, isa_);
  AddTasks(TaskKind::kTiles, index, state.packer->tiles(), 1);
  AddTasks(TaskKind::kStrips, index, state.packer->strips(), 1);
  AddTasks(TaskKind::kSmallParts, index, 1, 1);
  AddTasks(TaskKind::kSourceHash, index, state.sources.size(), 1);
}

Status ShardFiller::Run(unsigned threads, const std::string& output) {
  progress_.Begin("packing", plan_.output_bytes);
  std::vector<PanelBuffers> buffers(threads);
  Status status = ParallelFor(work_.size(), threads, [&](size_t index, unsigned worker) {
    if (CancellationRequested()) return Interrupted(output);
    const WorkList<TaskKind>::Task task = work_.At(index);
    Status done = RunTask(task, buffers[worker]);
    if (!done.ok() || units_[task.unit].unfinished.fetch_sub(1) != 1) return done;
    return FinishUnit(task.unit);
  });
  for (const UnitState& state : units_) {
    for (size_t i = 0; i < state.sources.size(); ++i) {
      source_hashes_[state.sources[i]->name] = state.source_hashes[i];
    }
  }
  return status;
}

Status ShardFiller::RunTask(const WorkList<TaskKind>::Task& task, PanelBuffers& buffers) {
  UnitState& state = units_[task.unit];
  switch (task.kind) {
    case TaskKind::kTiles:
      return PackTile(*state.packer, task.begin, buffers);
    case TaskKind::kStrips:
      return state.packer->PackStrip(task.begin, buffers);
    case TaskKind::kSmallParts:
      return state.packer->PackSmallParts(buffers);
    case TaskKind::kCopy:
      return CopyRange(shards_.units[task.unit], task.begin, task.end, buffers);
    case TaskKind::kSourceHash:
      return HashSource(state, task.begin);
  }
  return {};
}

Status ShardFiller::PackTile(const ModulePacker& packer, uint64_t index, PanelBuffers& buffers) {
  Status status = packer.PackTile(index, buffers);
  progress_.Add(buffers.packed.size());
  return status;
}

Status ShardFiller::CopyRange(const OutputUnit& unit, uint64_t begin, uint64_t end,
                              PanelBuffers& buffers) {
  buffers.panel.resize(end - begin);
  Status status = checkpoint_.Read(*unit.copied, begin, buffers.panel);
  if (!status.ok()) return status;
  progress_.Add(end - begin);
  const OutputSlot slot = unit.slots.front();
  return writers_[slot.shard].Write(slot.index, begin, buffers.panel);
}

Status ShardFiller::HashSource(UnitState& state, uint64_t index) {
  const StoredTensor& tensor = *state.sources[index];
  Result<std::string> hash = HashCachedRange(checkpoint_.files()[tensor.file].file, tensor.offset,
                                             tensor.offset + tensor.bytes);
  if (!hash.ok()) return hash.status();
  state.source_hashes[index] = *std::move(hash);
  return {};
}

Status ShardFiller::HashOutputs(const OutputUnit& unit) {
  for (const OutputSlot& slot : unit.slots) {
    Result<std::string> hash = HashSlot(writers_[slot.shard], slot.index);
    if (!hash.ok()) return hash.status();
    output_hashes_[slot.shard][slot.index] = *std::move(hash);
  }
  return {};
}

// Called once, after all tasks of the unit.
Status ShardFiller::FinishUnit(size_t index) {
  const OutputUnit& unit = shards_.units[index];
  UnitState& state = units_[index];
  if (unit.copied != nullptr) {
    const OutputSlot slot = unit.slots.front();
    output_hashes_[slot.shard][slot.index] = state.source_hashes.front();
  } else {
    if (Status status = HashOutputs(unit); !status.ok()) return status;
    state.rounded_scales = state.packer->rounded_scales();
  }
  FinishedUnit finished{state.rounded_scales, /*outputs=*/{}, state.source_hashes};
  for (const OutputSlot& slot : unit.slots) finished.outputs.push_back(OutputHash(slot));
  return journal_.Append(index, finished);
}

}  // namespace prepack
