#pragma once

#include <cstdint>
#include <string_view>

#include "prepack/base/status.h"

namespace prepack {

// What a piece of work allocates at its peak, in bytes.
struct MemoryNeed {
  uint64_t shared = 0;      // whatever the number of threads
  uint64_t per_thread = 0;  // of its buffers
};

// Threads for the work: `jobs` (0: one per CPU), or as many as fit into `memory_limit` bytes (0: no
// limit) beside what the process has taken so far. kUsage when not even one does; `done`:
// "verified".
Result<unsigned> ThreadsWithin(const MemoryNeed& need, unsigned jobs, uint64_t memory_limit,
                               std::string_view done);

// Bytes of memory that this process has now and that no file is behind (RssAnon): not the page
// cache, nor files that are mapped.
Result<uint64_t> AnonymousMemory();

}  // namespace prepack
