#include "prepack/base/memory.h"

#include <malloc.h>

#include <vector>

namespace prepack {

void GiveBackFreed() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

namespace internal {
namespace {

// More than functions that call each other have at a time: returning one never allocates.
constexpr std::size_t kMaxKept = 16;

struct Kept {
  std::vector<PageBuffer> buffers;

  Kept() { buffers.reserve(kMaxKept); }
};

thread_local Kept kept;

}  // namespace

// The last one returned: functions that call each other return in the opposite order, so that each
// finds its own again.
PageBuffer TakeScratch(std::size_t bytes) {
  PageBuffer buffer;
  if (!kept.buffers.empty()) {
    buffer = std::move(kept.buffers.back());
    kept.buffers.pop_back();
  }
  if (buffer.size() >= bytes) return buffer;
  buffer = PageBuffer();  // first: not both at a time
  return PageBuffer(bytes);
}

void ReturnScratch(PageBuffer buffer) noexcept {
  if (kept.buffers.size() < kMaxKept) kept.buffers.push_back(std::move(buffer));
}

}  // namespace internal
}  // namespace prepack
