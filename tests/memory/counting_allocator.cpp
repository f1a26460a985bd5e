#include "memory/counting_allocator.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<uint64_t> now = 0;
std::atomic<uint64_t> peak = 0;
std::atomic<uint64_t> calls = 0;
std::atomic<uint64_t> all_bytes = 0;
thread_local bool failing = false;

void* Count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const uint64_t bytes = malloc_usable_size(memory);
  calls.fetch_add(1);
  all_bytes.fetch_add(bytes);
  const uint64_t total = now.fetch_add(bytes) + bytes;
  uint64_t known = peak.load();
  while (known < total && !peak.compare_exchange_weak(known, total)) {
  }
  return memory;
}

void Free(void* memory) noexcept {
  if (memory == nullptr) return;
  now.fetch_sub(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

// The other forms of new and delete call these.
void* operator new(size_t bytes) {
  return Count(failing ? nullptr : std::malloc(bytes == 0 ? 1 : bytes));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto to = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(to, (bytes + to) / to * to));
}
void operator delete(void* memory) noexcept {
  Free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  Free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  Free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  Free(memory);
}

namespace prepack::testing {

void FailAllocations(bool fail) noexcept {
  failing = fail;
}

void StartCounting() noexcept {
  peak = now.load();
  calls = 0;
  all_bytes = 0;
}

Allocated AllocatedSoFar() noexcept {
  return {now.load(), peak.load(), calls.load(), all_bytes.load()};
}

}  // namespace prepack::testing
