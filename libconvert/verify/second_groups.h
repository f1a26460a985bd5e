#ifndef PREPACK_VERIFY_SECOND_GROUPS_H_
#define PREPACK_VERIFY_SECOND_GROUPS_H_

// Which scale an input channel has, for the second decoders.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/checkpoint.h"
#include "gemm/kernel_model.h"

namespace prepack {

// The group of each input channel of the slab, of `groups` groups that k input channels have: by
// the index tensor of that name where there is one that says something, else one group after the
// other. Negative entries count from the end; an index that is −1 or 0 throughout was never filled
// in. Entries out of range are kMalformed.
Status ReadSecondGroups(const Checkpoint& source, const std::string& index_name, uint64_t k,
                        uint64_t groups, const InputSlab& slab, std::vector<uint64_t>& group_of);

// Groups from the first to the last that input channels have.
struct SecondGroupRange {
  uint64_t first = 0;
  uint64_t count = 0;
};
// Makes group_of count from the first group that is in it.
SecondGroupRange CountFromFirstGroup(std::vector<uint64_t>& group_of);

// Scales [rows, groups] from scales [groups, rows].
void TransposeScales(const std::vector<double>& columns, uint64_t rows,
                     std::vector<double>& scales);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SECOND_GROUPS_H_
