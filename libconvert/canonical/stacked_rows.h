#ifndef PREPACK_CANONICAL_STACKED_ROWS_H_
#define PREPACK_CANONICAL_STACKED_ROWS_H_

// Output channels of modules that are stacked, one module after another, into one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace prepack {

// Channels of one member.
struct StackedRows {
  size_t member = 0;
  uint64_t n0 = 0;  // counted from the member's first
  uint64_t rows = 0;
  uint64_t before = 0;  // how many of the wanted ones come before them
};

// Calls visit(StackedRows) for the members that channels [n0, n0 + rows) of the whole belong to, in
// order; stops at the first status that is not OK. `sizes`: output channels of the members.
template <typename Visit>
Status ForStackedRows(std::span<const uint64_t> sizes, uint64_t n0, uint64_t rows, Visit visit) {
  uint64_t first = 0;  // channel of the whole where the member begins
  uint64_t done = 0;
  for (size_t member = 0; member < sizes.size() && done < rows; ++member) {
    const uint64_t begin = n0 + done - first;
    if (begin < sizes[member]) {
      const uint64_t count = std::min(sizes[member] - begin, rows - done);
      Status status =
          visit(StackedRows{.member = member, .n0 = begin, .rows = count, .before = done});
      if (!status.ok()) return status;
      done += count;
    }
    first += sizes[member];
  }
  return {};
}

}  // namespace prepack

#endif  // PREPACK_CANONICAL_STACKED_ROWS_H_
