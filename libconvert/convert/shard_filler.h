#ifndef PREPACK_CONVERT_SHARD_FILLER_H_
#define PREPACK_CONVERT_SHARD_FILLER_H_

// Fills the shards: every unit (a packed module, or a tensor that passes through) goes from the
// source to its place in the output, and what was read and written is hashed while it is still in
// the page cache. All of it is one list of small tasks in the order of the source, so that every
// thread has work until the end, reading is sequential, and nothing waits for a stage to end.
//
//   tiles, strips, small parts    of a packed module: reader → layout → shard
//   copies                        of a tensor that passes through
//   source hashes                 of the tensors that a unit is made of
//   output hashes                 of a packed module, by the thread that finishes it: read from the
//                                 shard, so that they say what the file holds
//
// Units that an earlier run finished are not done again. What is finished is noted in the journal.
//
// A tensor that passes through has one hash, that of the source: were it copied wrongly, it would
// not agree with the file.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/isa.h"
#include "base/progress.h"
#include "base/status.h"
#include "container/checkpoint.h"
#include "container/safetensors_writer.h"
#include "convert/journal.h"
#include "convert/module_packer.h"
#include "convert/output_shards.h"
#include "convert/plan.h"
#include "convert/source_hash.h"
#include "convert/work_list.h"

namespace prepack {

class ShardFiller {
 public:
  // The arguments must outlive the filler. `writers`: one per shard.
  ShardFiller(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
              std::vector<SafetensorsWriter>& writers, const FinishedUnits& finished,
              Journal& journal, Isa isa, Progress& progress);

  // Fills all shards on `threads` threads. `output` is what an interruption names.
  Status Run(unsigned threads, const std::string& output);

  // What is known afterwards.
  const Hash128& OutputHash(const OutputSlot& slot) const {
    return output_hashes_[slot.shard][slot.index];
  }
  // Of all tensors of a shard, in its order.
  const std::vector<Hash128>& OutputHashes(size_t shard) const { return output_hashes_[shard]; }
  const TensorHashes& source_hashes() const { return source_hashes_; }
  // Scales of a unit that were rounded to another value.
  uint64_t rounded_scales(size_t unit) const { return units_[unit].rounded_scales; }

 private:
  enum class TaskKind : uint8_t { kTiles, kStrips, kSmallParts, kCopy, kSourceHash };

  // A unit on its way. There may be very many: what can be made again is not kept.
  struct UnitState {
    uint32_t first_source = 0;             // in sources_
    uint32_t sources = 0;                  // to be hashed with this unit
    std::atomic<uint64_t> unfinished = 0;  // tasks
    std::atomic<uint64_t> rounded_scales = 0;
  };

  void AddUnit(size_t index, const FinishedUnits& finished, std::vector<bool>& has_unit);
  bool TakeFinished(size_t index, const FinishedUnit& finished);
  void AddSources(size_t index, std::vector<bool>& has_unit, UnitState& state);
  // To be hashed with the unit.
  std::span<const StoredTensor* const> SourcesOf(const UnitState& state) const;
  ModulePacker PackerOf(size_t unit);
  void AddTasks(TaskKind kind, size_t unit, size_t tasks);
  Status RunTask(const WorkList<TaskKind>::Task& task, PanelBuffers& buffers);
  Status PackTile(const ModulePacker& packer, uint64_t index, PanelBuffers& buffers);
  Status CopyPiece(const OutputUnit& unit, uint64_t index, PanelBuffers& buffers);
  Status HashSource(const StoredTensor& tensor);
  Status HashOutputs(const OutputUnit& unit);
  Status FinishUnit(size_t index);

  const Checkpoint& checkpoint_;
  const Plan& plan_;
  const OutputShards& shards_;
  std::vector<SafetensorsWriter>& writers_;
  Journal& journal_;
  const Isa isa_;
  Progress& progress_;

  WorkList<TaskKind> work_;
  std::deque<UnitState> units_;               // as in shards_.units
  std::vector<const StoredTensor*> sources_;  // unit by unit
  std::vector<std::vector<Hash128>> output_hashes_;
  TensorHashes source_hashes_;
};

}  // namespace prepack

#endif  // PREPACK_CONVERT_SHARD_FILLER_H_
