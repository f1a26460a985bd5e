#include "convert/shard_filler.h"

#include <algorithm>
#include <utility>

#include "base/cancellation.h"
#include "base/checked.h"
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
      progress_(progress),
      source_hashes_(checkpoint) {
  for (const SafetensorsWriter& writer : writers) {
    output_hashes_.emplace_back(writer.header().tensors.size());
  }
  std::vector<bool> has_unit(checkpoint.tensors().size());
  sources_.reserve(has_unit.size());
  constexpr size_t kMostKinds = 4;  // of tasks that a unit has
  work_.Reserve(kMostKinds * shards.units.size());
  for (size_t i = 0; i < shards.units.size(); ++i) AddUnit(i, finished, has_unit);
}

void ShardFiller::AddTasks(TaskKind kind, size_t unit, size_t tasks) {
  work_.Add(kind, static_cast<uint32_t>(unit), tasks);
  units_[unit].unfinished += tasks;
}

// Experts that are stacked share their tensors: the first of them has them hashed. `has_unit`: the
// tensors that a unit before this one has, by number.
void ShardFiller::AddSources(size_t index, std::vector<bool>& has_unit, UnitState& state) {
  const OutputUnit& unit = shards_.units[index];
  state.first_source = static_cast<uint32_t>(sources_.size());
  const auto add = [&](const StoredTensor* tensor) {
    if (tensor == nullptr) return;
    const auto number = static_cast<size_t>(tensor - checkpoint_.tensors().data());
    if (!has_unit[number]) sources_.push_back(tensor);
    has_unit[number] = true;
  };
  if (unit.copied != nullptr) {
    add(unit.copied);
  } else {
    for (const std::string& name : plan_.modules[unit.module].ReplacedTensors()) {
      add(checkpoint_.Find(name));
    }
  }
  state.sources = static_cast<uint32_t>(sources_.size() - state.first_source);
}

std::span<const StoredTensor* const> ShardFiller::SourcesOf(const UnitState& state) const {
  return std::span(sources_).subspan(state.first_source, state.sources);
}

// Of a packed module. It is made for every task: that costs little, and keeping one for every
// module would take more memory than all that is kept of its unit.
ModulePacker ShardFiller::PackerOf(size_t unit) {
  const OutputUnit& output = shards_.units[unit];
  return {checkpoint_, plan_.modules[output.module], output, writers_,
          isa_,        units_[unit].rounded_scales};
}

// False when it does not fit: then the unit is done again.
bool ShardFiller::TakeFinished(size_t index, const FinishedUnit& finished) {
  const OutputUnit& unit = shards_.units[index];
  UnitState& state = units_[index];
  if (finished.outputs.size() != unit.slots.size() || finished.sources.size() != state.sources) {
    return false;
  }
  for (size_t i = 0; i < unit.slots.size(); ++i) {
    output_hashes_[unit.slots[i].shard][unit.slots[i].index] = finished.outputs[i];
  }
  const auto sources = SourcesOf(state);
  for (size_t i = 0; i < sources.size(); ++i) source_hashes_.Set(*sources[i], finished.sources[i]);
  state.rounded_scales = finished.rounded_scales;
  return true;
}

void ShardFiller::AddUnit(size_t index, const FinishedUnits& finished,
                          std::vector<bool>& has_unit) {
  const OutputUnit& unit = shards_.units[index];
  UnitState& state = units_.emplace_back();
  AddSources(index, has_unit, state);
  const auto done = finished.find(index);
  if (done != finished.end() && TakeFinished(index, done->second)) return;
  if (unit.copied != nullptr) {
    AddTasks(TaskKind::kCopy, index, CeilDiv(unit.copied->bytes, kCopyBytes));
    AddTasks(TaskKind::kSourceHash, index, state.sources);
    return;
  }
  const ModulePacker packer = PackerOf(index);
  AddTasks(TaskKind::kTiles, index, packer.tiles());
  AddTasks(TaskKind::kStrips, index, packer.strips());
  AddTasks(TaskKind::kSmallParts, index, 1);
  AddTasks(TaskKind::kSourceHash, index, state.sources);
}

Status ShardFiller::Run(unsigned threads, const std::string& output) {
  progress_.Begin("packing", plan_.output_bytes);
  std::vector<PanelBuffers> buffers(threads);
  return ParallelFor(work_.size(), threads, [&](size_t index, unsigned worker) {
    if (CancellationRequested()) return Interrupted(output);
    const WorkList<TaskKind>::Task task = work_.At(index);
    Status done = RunTask(task, buffers[worker]);
    if (!done.ok() || units_[task.unit].unfinished.fetch_sub(1) != 1) return done;
    return FinishUnit(task.unit);
  });
}

Status ShardFiller::RunTask(const WorkList<TaskKind>::Task& task, PanelBuffers& buffers) {
  switch (task.kind) {
    case TaskKind::kTiles:
      return PackTile(PackerOf(task.unit), task.index, buffers);
    case TaskKind::kStrips:
      return PackerOf(task.unit).PackStrip(task.index, buffers);
    case TaskKind::kSmallParts:
      return PackerOf(task.unit).PackSmallParts(buffers);
    case TaskKind::kCopy:
      return CopyPiece(shards_.units[task.unit], task.index, buffers);
    case TaskKind::kSourceHash:
      return HashSource(*SourcesOf(units_[task.unit])[task.index]);
  }
  return {};
}

Status ShardFiller::PackTile(const ModulePacker& packer, uint64_t index, PanelBuffers& buffers) {
  Status status = packer.PackTile(index, buffers);
  progress_.Add(buffers.packed.size());
  return status;
}

Status ShardFiller::CopyPiece(const OutputUnit& unit, uint64_t index, PanelBuffers& buffers) {
  const uint64_t begin = index * kCopyBytes;
  const uint64_t bytes = std::min(kCopyBytes, unit.copied->bytes - begin);
  buffers.panel.resize(bytes);
  Status status = checkpoint_.Read(*unit.copied, begin, buffers.panel);
  if (!status.ok()) return status;
  progress_.Add(bytes);
  const OutputSlot slot = unit.slots.front();
  return writers_[slot.shard].Write(slot.index, begin, buffers.panel);
}

Status ShardFiller::HashSource(const StoredTensor& tensor) {
  const Result<Hash128> hash = HashCachedRange(checkpoint_.files()[tensor.file].file, tensor.offset,
                                               tensor.offset + tensor.bytes);
  if (!hash.ok()) return hash.status();
  source_hashes_.Set(tensor, *hash);
  return {};
}

Status ShardFiller::HashOutputs(const OutputUnit& unit) {
  for (const OutputSlot& slot : unit.slots) {
    const Result<Hash128> hash = HashSlot(writers_[slot.shard], slot.index);
    if (!hash.ok()) return hash.status();
    output_hashes_[slot.shard][slot.index] = *hash;
  }
  return {};
}

// Called once, after all tasks of the unit.
Status ShardFiller::FinishUnit(size_t index) {
  const OutputUnit& unit = shards_.units[index];
  const UnitState& state = units_[index];
  FinishedUnit finished{state.rounded_scales, /*outputs=*/{}, /*sources=*/{}};
  for (const StoredTensor* tensor : SourcesOf(state)) {
    finished.sources.push_back(*source_hashes_.Of(*tensor));
  }
  if (unit.copied != nullptr) {
    const OutputSlot slot = unit.slots.front();
    output_hashes_[slot.shard][slot.index] = finished.sources.front();
  } else if (Status status = HashOutputs(unit); !status.ok()) {
    return status;
  }
  for (const OutputSlot& slot : unit.slots) finished.outputs.push_back(OutputHash(slot));
  return journal_.Append(index, finished);
}

}  // namespace prepack
