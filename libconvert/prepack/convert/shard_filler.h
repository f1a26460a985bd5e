#pragma once

// Fills the shards: every unit (a packed module, or a tensor that passes through) goes from the
// source to its place in the output. A unit is a row of small tasks, in this order:
//
//   source hashes                 of a packed module whose codes are not packed as they lie: one
//                                 sequential read puts them into the cache for the next one
//   tiles, strips, small parts    of a packed module: reader → layout → shard
//   copies                        of a tensor that passes through
//
// Threads take the units in the order of the source (base/parallel.h), so reading is sequential and
// nothing waits for a stage to end. Data that is read or written in order is hashed on its way,
// while it is in the CPU's cache; the thread that finishes the unit hashes the rest from the page
// cache.
//
// Units that an earlier run finished are not done again. The journal records finished units.
//
// A tensor that passes through has one hash, that of the source: if it were copied wrongly, the
// hash would not match the file.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/convert/module_packer.h"
#include "prepack/convert/output_shards.h"
#include "prepack/convert/plan.h"
#include "prepack/convert/resume.h"
#include "prepack/packed/conversion_observer.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/source_identity.h"

namespace prepack {

class ShardFiller final : private UnitWork {
 public:
  // The arguments must outlive the filler. `writers`: one per shard. `finished`: what resume.h lets
  // pass, so that all that it refers to is there.
  ShardFiller(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
              std::vector<SafetensorsWriter>& writers, const FinishedUnits& finished,
              Journal& journal, Progress& progress);

  // Is told of every unit that is written; null: nobody. Must outlive Run.
  void SetObserver(ConversionObserver* observer) { observer_ = observer; }

  // Fills all shards on `threads` threads. `output` is what an interruption names.
  Status Run(unsigned threads, const std::string& output);
  // The same in batches: Begin, then each unit once.
  void Begin(unsigned threads, const std::string& output);
  Status RunUnits(std::span<const size_t> units);
  // In batches, too: shows the observer what an earlier run has finished, while its source is here.
  Status ShowFinished();

  // What is known afterwards.
  const Hash128& OutputHash(const OutputSlot& slot) const {
    return output_hashes_[slot.shard][slot.index];
  }
  // The hashes of all tensors of a shard, in its order.
  const std::vector<Hash128>& OutputHashes(size_t shard) const { return output_hashes_[shard]; }
  const TensorHashes& source_hashes() const { return source_hashes_; }
  // Scales of a unit that were rounded to another value.
  uint64_t rounded_scales(size_t unit) const { return rounded_scales_[unit]; }

 private:
  // A unit on its way.
  struct UnitState {
    std::optional<ModulePacker> packer;  // of a packed module
    UnitHashes hashes;
  };

  uint64_t Begin(size_t turn) override;
  Status Do(size_t turn, uint64_t task, bool own, unsigned worker) override;
  Status Flush(size_t turn, unsigned worker) override;
  Status End(size_t turn) override;

  uint64_t BytesToWrite() const;
  void AddSources(const OutputUnit& unit, UnitHashes& hashes);
  void Keep(size_t index, const FinishedUnit& finished);
  Status HashSources(UnitState& state) const;
  Status PackTask(const UnitState& state, uint64_t task, PanelBuffers& buffers,
                  UnitHashes* hashes) const;
  Status CopyTask(const OutputUnit& unit, uint64_t task, PanelBuffers& buffers,
                  UnitHashes* hashes) const;
  Status TellObserver(const OutputUnit& unit) const;
  Status FinishHashes(const OutputUnit& unit, UnitHashes& hashes, FinishedUnit& finished);

  const Checkpoint& checkpoint_;
  const Plan& plan_;
  const OutputShards& shards_;
  std::vector<SafetensorsWriter>& writers_;
  Journal& journal_;
  Progress& progress_;
  ConversionObserver* observer_ = nullptr;

  const FinishedUnits& finished_;
  std::string output_;
  std::vector<PanelBuffers> buffers_;               // one per thread
  std::vector<size_t> order_;                       // the unit of each turn
  std::vector<std::unique_ptr<UnitState>> states_;  // null before and after
  std::vector<uint64_t> rounded_scales_;            // one per unit, like the states
  std::vector<std::vector<Hash128>> output_hashes_;
  std::vector<bool> has_unit_;  // the source tensors that a unit has, by number
  TensorHashes source_hashes_;
};

}  // namespace prepack
