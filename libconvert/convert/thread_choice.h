#ifndef PREPACK_CONVERT_THREAD_CHOICE_H_
#define PREPACK_CONVERT_THREAD_CHOICE_H_

#include <cstdint>

#include "base/result.h"
#include "convert/plan.h"

namespace prepack {

// Threads for a conversion: `jobs` (0: one per CPU), or as many as fit into `memory_limit` bytes
// (0: no limit) beside what the process has taken so far. kUsage when not even one does.
Result<unsigned> ThreadsFor(const Plan& plan, unsigned jobs, uint64_t memory_limit);

}  // namespace prepack

#endif  // PREPACK_CONVERT_THREAD_CHOICE_H_
