#pragma once

// g_idx: the group of each input channel. The codes stay in the order of the checkpoint; with
// activation order only the map from channel to group is scattered. The tensor decides whether
// there is an order, not the config: static groups and group-aware reordering leave it natural.

#include <cstdint>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

struct GroupOrder {
  enum class Kind : uint8_t {
    kAbsent,     // no g_idx
    kUnset,      // never filled in, so the order is natural
    kNatural,    // k / group size
    kScattered,  // anything else
  };
  Kind kind = Kind::kAbsent;
  std::vector<uint32_t> group_of;  // [K]; empty unless kScattered
  // The permutation that makes groups contiguous and keeps the order inside them; empty unless
  // kScattered.
  InputOrder k_order;
};

// What negative indexes and indexes of zeros mean.
enum class GroupDialect : uint8_t {
  kCompressedTensors,  // −1 is unset, and either all of them are or none
  kGptq,  // negative ones count from the end, as in Python; −1 or 0 throughout is unset
};

// An index I32 or I64 [k], or none where `g_idx` is null. A group that does not exist, and groups
// that are not all of the group size (the last one may be short), are kMalformed: no quantizer
// makes such, and kernels want every group to hold as many channels as the others.
Result<GroupOrder> ReadGroupOrder(const Checkpoint& checkpoint, const StoredTensor* g_idx,
                                  uint64_t k, uint64_t group_size, GroupDialect dialect);

// The k_order of a module whose order was kScattered when it was described. Anything else now is
// kMalformed.
Result<InputOrder> ReadKOrder(const Checkpoint& checkpoint, const StoredTensor& g_idx, uint64_t k,
                              uint64_t group_size, GroupDialect dialect);

}  // namespace prepack
