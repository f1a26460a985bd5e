#ifndef PREPACK_CONVERT_WORK_LIST_H_
#define PREPACK_CONVERT_WORK_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/checked.h"

namespace prepack {

// Millions of small tasks, described by a few ranges: the list stays small however large the model
// is, and task i is found by binary search.
template <typename Kind>
class WorkList {
 public:
  // Part [begin, end) of unit `unit`.
  struct Task {
    Kind kind;
    size_t unit;
    uint64_t begin;
    uint64_t end;
  };

  // Adds the range [0, total) of a unit, cut into tasks of `step`; returns how many.
  size_t Add(Kind kind, size_t unit, uint64_t total, uint64_t step) {
    if (total == 0) return 0;
    ranges_.push_back({kind, unit, total, step, size_});
    const auto tasks = static_cast<size_t>(CeilDiv(total, step));
    size_ += tasks;
    return tasks;
  }

  size_t size() const { return size_; }

  Task At(size_t index) const {
    const auto after = std::ranges::upper_bound(ranges_, index, {}, &Range::first_task);
    const Range& range = *std::prev(after);
    const uint64_t begin = (index - range.first_task) * range.step;
    return {range.kind, range.unit, begin, std::min(range.total, begin + range.step)};
  }

 private:
  struct Range {
    Kind kind;
    size_t unit;
    uint64_t total;
    uint64_t step;
    size_t first_task;
  };
  std::vector<Range> ranges_;
  size_t size_ = 0;
};

}  // namespace prepack

#endif  // PREPACK_CONVERT_WORK_LIST_H_
