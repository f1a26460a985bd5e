#pragma once

// What is written as one. A tensor is, unless it is a stack of experts that lie in several shards
// of the checkpoint: then experts of one shard are, so that the shards need not all be here at a
// time.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/plan.h"

namespace prepack::gguf {

struct OutputUnit {
  size_t tensor = 0;   // of the plan
  uint64_t first = 0;  // rows of it
  uint64_t rows = 0;   // none: all of a tensor that has no rows
};

// In the order of the plan, those of a tensor together and in their order.
std::vector<OutputUnit> DivideIntoUnits(const Checkpoint& checkpoint, const Plan& plan);

// The tensors of the checkpoint that it is made of, ascending by file and offset.
std::vector<const StoredTensor*> SourcesOf(const Checkpoint& checkpoint, const Plan& plan,
                                           const OutputUnit& unit);

}  // namespace prepack::gguf
