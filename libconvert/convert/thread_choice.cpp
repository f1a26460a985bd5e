#include "convert/thread_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "io/process_memory.h"

namespace prepack {
namespace {

// What a thread needs besides the buffers: its stack, and its share of the allocator.
constexpr uint64_t kThreadOverhead = 512ULL * 1024;

}  // namespace

Result<unsigned> ThreadsFor(const Plan& plan, unsigned jobs, uint64_t memory_limit) {
  const unsigned wanted = ThreadCount(jobs);
  if (memory_limit == 0) return wanted;
  const Result<uint64_t> taken = AnonymousMemory();
  if (!taken.ok()) return taken.status();
  const uint64_t per_thread = plan.PeakMemory(1) + kThreadOverhead;
  const uint64_t left = memory_limit > *taken ? memory_limit - *taken : 0;
  if (left < per_thread) {
    return Usage("--memory-limit", "this model cannot be converted in so little memory")
        .Found(fmt::format("{} bytes", memory_limit))
        .Expected(fmt::format("at least {}", *taken + per_thread))
        .Hint("The page cache is not counted");
  }
  return static_cast<unsigned>(std::min<uint64_t>(wanted, left / per_thread));
}

}  // namespace prepack
