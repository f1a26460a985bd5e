#include "prepack/base/progress.h"

#include <atomic>

namespace prepack {
namespace {

std::atomic<bool> requested = false;
std::atomic<void (*)()> look_hook = nullptr;
std::atomic<int> orderly_ends = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "needed inside a signal handler");

}  // namespace

void RequestCancellation() noexcept {
  requested.store(true, std::memory_order_relaxed);
}
bool CancellationRequested() noexcept {
  if (void (*const hook)() = look_hook.load(std::memory_order_relaxed)) hook();
  return requested.load(std::memory_order_relaxed);
}
void ResetCancellation() noexcept {
  requested.store(false, std::memory_order_relaxed);
}
void SetCancellationHook(void (*hook)()) noexcept {
  look_hook.store(hook, std::memory_order_relaxed);
}

OrderlyEnd::OrderlyEnd() noexcept {
  orderly_ends.fetch_add(1);
}
OrderlyEnd::~OrderlyEnd() {
  orderly_ends.fetch_sub(1);
}
bool OrderlyEnd::IsNeeded() noexcept {
  return orderly_ends.load() != 0;
}

}  // namespace prepack
