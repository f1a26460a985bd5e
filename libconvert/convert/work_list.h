#ifndef PREPACK_CONVERT_WORK_LIST_H_
#define PREPACK_CONVERT_WORK_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace prepack {

// Millions of small tasks, described by a few ranges: the list stays small however large the model
// is, and task i is found by binary search.
template <typename Kind>
class WorkList {
 public:
  // Task `index` of those of its unit and kind.
  struct Task {
    Kind kind;
    size_t unit;
    size_t index;
  };

  // Makes room for so many calls of Add.
  void Reserve(size_t calls) { ranges_.reserve(calls); }

  // Adds `tasks` tasks of a unit, numbered from 0.
  void Add(Kind kind, uint32_t unit, size_t tasks) {
    if (tasks == 0) return;
    ranges_.push_back({size_, unit, kind});
    size_ += tasks;
  }

  size_t size() const { return size_; }

  Task At(size_t index) const {
    const auto after = std::ranges::upper_bound(ranges_, index, {}, &Range::first_task);
    const Range& range = *std::prev(after);
    return {range.kind, range.unit, index - range.first_task};
  }

 private:
  // There are several for every module.
  struct Range {
    size_t first_task;
    uint32_t unit;
    Kind kind;
  };
  std::vector<Range> ranges_;
  size_t size_ = 0;
};

}  // namespace prepack

#endif  // PREPACK_CONVERT_WORK_LIST_H_
