// The tasks of a unit, and who does them. One thread takes a unit as a whole, since neighbouring
// tasks read neighbouring bytes; threads that find no unit left help the others, so that the last
// large unit does not keep one thread busy alone.

#include "prepack/convert/shard_filler.h"

#include <algorithm>
#include <memory>

#include "prepack/base/checked.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"

namespace prepack {
namespace {

constexpr uint64_t kCopyBytes = 128ULL * 1024;  // stays in the L2 cache between read and write

}  // namespace

ShardFiller::ShardFiller(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
                         std::vector<SafetensorsWriter>& writers, const FinishedUnits& finished,
                         Journal& journal, Progress& progress)
    : checkpoint_(checkpoint),
      plan_(plan),
      shards_(shards),
      writers_(writers),
      journal_(journal),
      progress_(progress),
      finished_(finished),
      states_(shards.units.size()),
      rounded_scales_(shards.units.size()),
      has_unit_(checkpoint.tensors().size()),
      source_hashes_(checkpoint) {
  // Source tensors of finished units need not be hashed again, even if other units share them.
  for (const auto& [unit, done] : finished) {
    for (const SourceNote& note : done.sources) {
      source_hashes_.Set(checkpoint.tensors()[note.tensor], note.hash);
      has_unit_[note.tensor] = true;
    }
  }
  for (const SafetensorsWriter& writer : writers) {
    output_hashes_.emplace_back(writer.header().tensors.size());
  }
}

Status ShardFiller::Run(unsigned threads, const std::string& output) {
  Begin(threads, output);
  return RunUnits(UnitsInTurns(shards_));
}

void ShardFiller::Begin(unsigned threads, const std::string& output) {
  const uint64_t bytes = BytesToWrite();
  if (observer_ == nullptr) {
    progress_.Begin("packing", bytes);
  } else {
    progress_.Begin("packing and verifying", bytes + observer_->bytes());
  }
  output_ = output;
  buffers_.resize(threads);
}

Status ShardFiller::RunUnits(std::span<const size_t> units) {
  order_.assign(units.begin(), units.end());
  return ForUnits(order_.size(), static_cast<unsigned>(buffers_.size()), *this);
}

Status ShardFiller::ShowFinished() {
  std::vector<size_t> units;
  for (const auto& [unit, done] : finished_) units.push_back(unit);
  return ParallelFor(units.size(), static_cast<unsigned>(buffers_.size()),
                     [&](size_t i, unsigned) { return TellObserver(shards_.units[units[i]]); });
}

// The bytes of all units but the finished ones. The shards may be only a part of the output.
uint64_t ShardFiller::BytesToWrite() const {
  uint64_t bytes = 0;
  for (size_t unit = 0; unit < shards_.units.size(); ++unit) {
    if (finished_.contains(unit)) continue;
    for (const OutputSlot& slot : shards_.units[unit].slots) {
      bytes += writers_[slot.shard].header().tensors[slot.index].bytes();
    }
  }
  return bytes;
}

// Stacked experts share their tensors: the first expert hashes them.
void ShardFiller::AddSources(const OutputUnit& unit, UnitHashes& hashes) {
  for (const StoredTensor* tensor : SourcesOf(checkpoint_, plan_, unit)) {
    const size_t number = NumberOf(checkpoint_, *tensor);
    if (!has_unit_[number]) hashes.sources.push_back(tensor);
    has_unit_[number] = true;
  }
}

// Records the results of a finished unit and drops its state.
void ShardFiller::Keep(size_t index, const FinishedUnit& finished) {
  const OutputUnit& unit = shards_.units[index];
  for (size_t i = 0; i < unit.slots.size(); ++i) {
    output_hashes_[unit.slots[i].shard][unit.slots[i].index] = finished.outputs[i];
  }
  for (const SourceNote& note : finished.sources) {
    source_hashes_.Set(checkpoint_.tensors()[note.tensor], note.hash);
  }
  rounded_scales_[index] = finished.rounded_scales;
  states_[index].reset();
}

uint64_t ShardFiller::Begin(size_t turn) {
  const size_t index = order_[turn];
  if (const auto done = finished_.find(index); done != finished_.end()) {
    Keep(index, done->second);
    return 0;
  }
  const OutputUnit& unit = shards_.units[index];
  states_[index] = std::make_unique<UnitState>();
  UnitState& state = *states_[index];
  AddSources(unit, state.hashes);
  progress_.BeginItem(unit.copied != nullptr ? unit.copied->name
                                             : plan_.modules[unit.module].linear->module());
  state.hashes.of_sources.resize(state.hashes.sources.size());
  if (unit.copied != nullptr) {
    return std::max<uint64_t>(1, CeilDiv(unit.copied->bytes, kCopyBytes));
  }
  state.hashes.of_outputs.resize(unit.slots.size());
  state.packer.emplace(checkpoint_, plan_.modules[unit.module], unit, writers_);
  return 1 + state.packer->tiles() + state.packer->strips() + 1;
}

Status ShardFiller::Do(size_t turn, uint64_t task, bool own, unsigned worker) {
  const size_t index = order_[turn];
  if (CancellationRequested()) return Interrupted(output_);
  const OutputUnit& unit = shards_.units[index];
  UnitState& state = *states_[index];
  UnitHashes* hashes = own ? &state.hashes : nullptr;
  if (unit.copied != nullptr) return CopyTask(unit, task, buffers_[worker], hashes);
  if (task == 0) return own ? HashSources(state) : Status();
  return PackTask(state, task - 1, buffers_[worker], hashes);
}

Status ShardFiller::Flush(size_t /*unit*/, unsigned worker) {
  return buffers_[worker].writes.Flush();
}

Status ShardFiller::HashSources(UnitState& state) const {
  for (size_t i = 0; i < state.hashes.sources.size(); ++i) {
    const StoredTensor& tensor = *state.hashes.sources[i];
    if (state.packer->Offers(tensor)) continue;
    PREPACK_TRY(state.hashes.of_sources[i].ReadRest(RangeOf(checkpoint_, tensor)));
  }
  return {};
}

namespace {

// A task of a packer: a tile, then the strips, then all that is left.
Status PackPieces(const ModulePacker& packer, uint64_t task, PanelBuffers& buffers,
                  UnitHashes* hashes) {
  if (task < packer.tiles()) return packer.PackTile(task, buffers, hashes);
  task -= packer.tiles();
  return task < packer.strips() ? packer.PackStrip(task, buffers) : packer.PackSmallParts(buffers);
}

}  // namespace

Status ShardFiller::PackTask(const UnitState& state, uint64_t task, PanelBuffers& buffers,
                             UnitHashes* hashes) const {
  const uint64_t before = buffers.written;
  PREPACK_TRY(PackPieces(*state.packer, task, buffers, hashes));
  progress_.Add(buffers.written - before);
  return {};
}

Status ShardFiller::CopyTask(const OutputUnit& unit, uint64_t task, PanelBuffers& buffers,
                             UnitHashes* hashes) const {
  const StoredTensor& tensor = *unit.copied;
  const uint64_t begin = task * kCopyBytes;
  const uint64_t bytes = std::min(kCopyBytes, tensor.bytes - begin);
  buffers.packed.resize(bytes);
  PREPACK_TRY(checkpoint_.Read(tensor, begin, buffers.packed));
  if (hashes != nullptr) hashes->OfferSource(&tensor, begin, buffers.packed);
  progress_.Add(bytes);
  const OutputSlot slot = unit.slots.front();
  return buffers.writes.Add(writers_[slot.shard], slot.index, {{.offset = begin, .bytes = bytes}},
                            buffers.packed);
}

Status ShardFiller::FinishHashes(const OutputUnit& unit, UnitHashes& hashes,
                                 FinishedUnit& finished) {
  for (size_t i = 0; i < hashes.sources.size(); ++i) {
    PREPACK_TRY_ASSIGN(const Hash128 hash,
                       hashes.of_sources[i].Finish(RangeOf(checkpoint_, *hashes.sources[i])));
    finished.sources.push_back({NumberOf(checkpoint_, *hashes.sources[i]), hash});
  }
  if (unit.copied != nullptr) finished.outputs = {finished.sources.front().hash};
  for (size_t i = 0; i < hashes.of_outputs.size(); ++i) {
    const OutputSlot slot = unit.slots[i];
    PREPACK_TRY_ASSIGN(const Hash128 hash,
                       hashes.of_outputs[i].Finish(RangeOf(writers_[slot.shard], slot.index)));
    finished.outputs.push_back(hash);
  }
  return {};
}

Status ShardFiller::End(size_t turn) {
  const size_t index = order_[turn];
  UnitState& state = *states_[index];
  FinishedUnit finished;
  PREPACK_TRY(FinishHashes(shards_.units[index], state.hashes, finished));
  if (state.packer.has_value()) finished.rounded_scales = state.packer->rounded_scales();
  Keep(index, finished);
  PREPACK_TRY(journal_.Append(index, finished));
  return observer_ != nullptr ? TellObserver(shards_.units[index]) : Status();
}

Status ShardFiller::TellObserver(const OutputUnit& unit) const {
  if (unit.copied != nullptr) return observer_->TensorIsWritten(std::string(unit.copied->name));
  return observer_->ModuleIsWritten(std::string(plan_.modules[unit.module].linear->module()));
}

}  // namespace prepack
