#pragma once

#include <cstddef>
#include <cstdint>

#include "prepack/base/function_ref.h"
#include "prepack/base/status.h"

namespace prepack {

// The number of threads to use for `jobs` (0: one per CPU that this process may run on).
unsigned ThreadCount(unsigned jobs);

// Runs `work`; an exception (such as std::bad_alloc) becomes a kSystem status. Throws
// std::bad_alloc where there is not enough memory for that either.
Status CatchExceptions(FunctionRef<Status()> work);

// Calls task(index, worker) for every index in [0, count), from `threads` threads; worker is in
// [0, threads), and no two calls with the same worker overlap, so it can select a buffer. Indices
// are handed out in ascending order. After the first failure no new index is started; the failure
// with the lowest index is returned, so the message does not depend on timing when several tasks
// would fail on their own. Exceptions are caught as above, and none leaves a thread.
Status ParallelFor(size_t count, unsigned threads,
                   FunctionRef<Status(size_t index, unsigned worker)> task);

// Units of work, each of which is a row of small tasks. A thread takes a unit for itself and does
// its tasks in order, so that what they read and write passes by in order, too; where no unit is
// left to be taken it helps with those of the others, so that all threads end together.

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
