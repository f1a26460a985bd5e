#pragma once

// Counts what the program allocates by new, from all threads. Linking counting_allocator.cpp
// switches it on.

#include <cstdint>

namespace prepack::testing {

struct Allocated {
  uint64_t now = 0;    // bytes, as the allocator rounds them
  uint64_t peak = 0;   // most bytes at a time since StartCounting
  uint64_t calls = 0;  // of new since StartCounting
  uint64_t total = 0;  // bytes of all of them, also of those that were freed
};

void StartCounting() noexcept;

// From now on this thread gets no memory from operator new, or again does.
void FailAllocations(bool fail) noexcept;
Allocated AllocatedSoFar() noexcept;

}  // namespace prepack::testing
