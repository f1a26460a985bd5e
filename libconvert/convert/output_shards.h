#ifndef PREPACK_CONVERT_OUTPUT_SHARDS_H_
#define PREPACK_CONVERT_OUTPUT_SHARDS_H_

// Which tensors the output has and which file each goes to: decided from the plan alone, so that
// the output does not depend on threads or timing.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/checkpoint.h"
#include "container/safetensors_writer.h"
#include "convert/plan.h"

namespace prepack {

// Where one output tensor goes: tensor `index` of shard `shard`.
struct OutputSlot {
  size_t shard = 0;
  size_t index = 0;
};

// A packed module: the slots of plan.modules[module].parts, in the same order.
struct PackedModuleOutput {
  size_t module = 0;
  std::vector<OutputSlot> slots;
};

// A tensor that passes through bit for bit.
struct CopiedTensorOutput {
  const StoredTensor* source = nullptr;
  OutputSlot slot;
};

struct OutputShards {
  std::vector<std::string> names;  // "model.safetensors", or "model-00001-of-00002.safetensors"…
  std::vector<SafetensorsPlan> plans;  // one per name
  std::vector<PackedModuleOutput> packed;
  std::vector<CopiedTensorOutput> copied;
  uint64_t file_bytes = 0;  // all shards with their headers
};

// A new shard is started when the current one has reached this size; a tensor is never split.
inline constexpr uint64_t kDefaultShardBytes = 4'000'000'000;

// The order is that of the source (by file and offset), so that reading is sequential. A part name
// that collides with a tensor that passes through is kMalformed; a module that is kept although
// others in its tensor are packed is kUnsupported.
Result<OutputShards> PlanOutputShards(const Checkpoint& checkpoint, const Plan& plan,
                                      uint64_t shard_bytes = kDefaultShardBytes);

}  // namespace prepack

#endif  // PREPACK_CONVERT_OUTPUT_SHARDS_H_
