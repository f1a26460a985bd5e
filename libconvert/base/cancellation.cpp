#include "base/cancellation.h"

#include <atomic>

namespace prepack {
namespace {

std::atomic<bool> requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "needed inside a signal handler");

}  // namespace

void RequestCancellation() noexcept {
  requested.store(true, std::memory_order_relaxed);
}
bool CancellationRequested() noexcept {
  return requested.load(std::memory_order_relaxed);
}
void ResetCancellation() noexcept {
  requested.store(false, std::memory_order_relaxed);
}

}  // namespace prepack
