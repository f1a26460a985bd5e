#ifndef PREPACK_BASE_PARALLEL_UNITS_H_
#define PREPACK_BASE_PARALLEL_UNITS_H_

// Units of work, each of which is a row of small tasks. A thread takes a unit for itself and does
// its tasks in order, so that what they read and write passes by in order, too; where no unit is
// left to be taken it helps with those of the others, so that all threads end together.

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace prepack {

class UnitWork {
 public:
  UnitWork() = default;
  UnitWork(const UnitWork&) = delete;
  UnitWork& operator=(const UnitWork&) = delete;
  virtual ~UnitWork() = default;

  // How many tasks the unit has; 0: nothing is to be done, and End is not called. Called once, and
  // in ascending order of units, by the thread that takes the unit.
  virtual uint64_t Begin(size_t unit) = 0;
  // One task. `own`: this thread took the unit. Such tasks of a unit come one after the other, in
  // ascending order; those of helpers may run beside them. `worker` is as for ParallelFor.
  virtual Status Do(size_t unit, uint64_t task, bool own, unsigned worker) = 0;
  // After the last task that a thread does of the unit: what it put off is to be done now.
  virtual Status Flush(size_t unit, unsigned worker) = 0;
  // After all tasks of the unit, which have been seen to end, on the thread of the last one.
  virtual Status End(size_t unit) = 0;
};

// Does all units on `threads` threads. After a failure nothing new is started behind it; the first
// failure, by unit and task, is returned, so that the message does not depend on timing. Exceptions
// are failures as for ParallelFor.
Status ForUnits(size_t units, unsigned threads, UnitWork& work);

}  // namespace prepack

#endif  // PREPACK_BASE_PARALLEL_UNITS_H_
