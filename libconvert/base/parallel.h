#ifndef PREPACK_BASE_PARALLEL_H_
#define PREPACK_BASE_PARALLEL_H_

#include <cstddef>

#include "base/function_ref.h"
#include "base/status.h"

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

}  // namespace prepack

#endif  // PREPACK_BASE_PARALLEL_H_
