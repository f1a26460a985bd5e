#ifndef PREPACK_MODEL_STACKED_LINEAR_H_
#define PREPACK_MODEL_STACKED_LINEAR_H_

// Output channels of modules that are stacked, one module after another, into one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/model/quantized_linear.h"

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

// Layers that read the same input, as one layer: their output channels one after another. Runtimes
// hold q, k and v like this, and gate and up.

// The members as one module of that name; they must live longer. kUnsupported when they are
// quantized in ways that do not go together: what() says how they differ, without a place. Any
// other error is one of reading the source.
//
// Members with one scale each become a module with one scale per output channel.
Result<std::unique_ptr<QuantizedLinear>> Stack(std::string module,
                                               std::vector<const QuantizedLinear*> members);

// The modules of the checkpoint that a module is: its members, or itself alone.
std::vector<const QuantizedLinear*> MembersOf(const QuantizedLinear& linear);

}  // namespace prepack

#endif  // PREPACK_MODEL_STACKED_LINEAR_H_
