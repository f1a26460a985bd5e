#pragma once

// Which tensors the output has and which file each goes to: decided from the plan alone, so that
// the output does not depend on threads or timing.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/convert/plan.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

// Where one output tensor goes: tensor `index` of shard `shard`.
struct OutputSlot {
  uint32_t shard = 0;
  uint32_t index = 0;
};

// What is written as one: a packed module, or a tensor that passes through bit for bit.
struct OutputUnit {
  size_t module = 0;                     // index into plan.modules, unless `copied` is set
  const StoredTensor* copied = nullptr;  // null: a packed module
  // The places of the module's parts, in their order, or of the tensor. They lie in
  // OutputShards::slots.
  std::span<const OutputSlot> slots;
};

struct OutputShards {
  OutputShards() = default;
  OutputShards(OutputShards&&) = default;
  OutputShards& operator=(OutputShards&&) = default;
  ~OutputShards() = default;
  // Units of a copy would refer to the slots of what it was made from.
  OutputShards(const OutputShards&) = delete;
  OutputShards& operator=(const OutputShards&) = delete;

  std::vector<std::string> names;  // "model.safetensors", or "model-00001-of-00002.safetensors"…
  std::vector<SafetensorsPlan> plans;  // one per name
  std::vector<OutputUnit> units;       // in the order of the source
  std::vector<OutputSlot> slots;       // of all units: one piece of memory, not one for each
  uint64_t file_bytes = 0;             // all shards with their headers
};

// A new shard is started when the current one has reached this size; a tensor is never split.
inline constexpr uint64_t kDefaultShardBytes = 4'000'000'000;

// The order is that of the source (by file and offset), so that reading is sequential. A part name
// that collides with a tensor that passes through is kMalformed; a module that is kept although
// others in its tensor are packed is kUnsupported.
//
// A part gets only its share, in its own shards, and may have none.
Result<OutputShards> PlanOutputShards(const Checkpoint& checkpoint, const Plan& plan,
                                      uint64_t shard_bytes = kDefaultShardBytes,
                                      const Part& part = {});

// The tensors of the source that a unit is made of.
std::vector<const StoredTensor*> SourcesOf(const Checkpoint& checkpoint, const Plan& plan,
                                           const OutputUnit& unit);

// The units in the order in which they are best written: shards take turns, so many at a time,
// because writes to one file exclude each other in the kernel.
inline constexpr size_t kShardsAtOnce = 4;
std::vector<size_t> UnitsInTurns(const OutputShards& shards);

// "model.safetensors", or "model-00002-of-00005.safetensors" for shard 1 (counted from 0) of 5.
std::string ShardName(size_t shard, size_t count);

}  // namespace prepack
