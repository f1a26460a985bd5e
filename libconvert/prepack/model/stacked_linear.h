#pragma once

// Output channels of modules that are stacked, one module after another, into one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
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

// Where the output channels of each member end, counted in the whole. A stack of experts has
// thousands of members: the one that a channel belongs to is found by halving.
class StackedEnds {
 public:
  void Add(uint64_t n) { ends_.push_back(total() + n); }
  uint64_t total() const { return ends_.empty() ? 0 : ends_.back(); }

  // Calls visit(StackedRows) for the members that channels [n0, n0 + rows) of the whole belong to,
  // in order; stops at the first status that is not OK.
  template <typename Visit>
  Status ForRows(uint64_t n0, uint64_t rows, Visit visit) const {
    auto end = std::ranges::upper_bound(ends_, n0);
    for (uint64_t done = 0; end != ends_.end() && done < rows; ++end) {
      const uint64_t first = end == ends_.begin() ? 0 : *(end - 1);
      const uint64_t begin = n0 + done;
      if (*end == begin) continue;  // a member without channels
      const uint64_t count = std::min(*end - begin, rows - done);
      PREPACK_TRY(visit(StackedRows{.member = static_cast<size_t>(end - ends_.begin()),
                                    .n0 = begin - first,
                                    .rows = count,
                                    .before = done}));
      done += count;
    }
    return {};
  }

 private:
  std::vector<uint64_t> ends_;
};

// Layers that read the same input, as one layer: their output channels one after another. Runtimes
// hold q, k and v like this, and gate and up.

// The members as one module of that name; they must live longer. kUnsupported when they are
// quantized in ways that do not go together: what() says how they differ, without a place. Any
// other error is one of reading the source.
//
// Members with one scale each become a module with one scale per output channel. `experts`: how
// many experts of a mixture the members are, the projections of one after those of another; 0: they
// are none. `for_values`: what is wanted is the weights, not their codes, so that blocks of
// channels that share a scale may end anywhere.
Result<std::unique_ptr<QuantizedLinear>> Stack(std::string_view module,
                                               std::vector<const QuantizedLinear*> members,
                                               uint64_t experts = 0, bool for_values = false);

// The modules of the checkpoint that a module is: its members, or itself alone.
std::vector<const QuantizedLinear*> MembersOf(const QuantizedLinear& linear);

}  // namespace prepack
