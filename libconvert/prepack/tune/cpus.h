#pragma once

// The CPUs that a server of so many threads would run on, and how fast they read memory.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "prepack/base/status.h"

namespace prepack {

struct CpuPlace {
  unsigned cpu = 0;
  uint64_t core = 0;  // CPUs of one core have the same

  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

// Those that this process may run on, ascending. `root` is the folder with sys/; where it does not
// say which core a CPU belongs to, each is taken for a core of its own.
std::vector<CpuPlace> AllowedCpus(const std::filesystem::path& root = "/");

// `threads` CPUs of different cores, as far as there are so many; 0: one of each core. kUsage where
// there are fewer CPUs than threads.
Result<std::vector<unsigned>> ChooseCpus(std::span<const CpuPlace> allowed, unsigned threads);

// The calling thread, and those that it starts from here on, run on these CPUs only.
Status PinTo(std::span<const unsigned> cpus);

// Bytes per second that all of these CPUs together read from memory, each with a thread of its own,
// from `bytes` in all: the median of several passes. That should be a few times what caches hold.
double MeasureReadBandwidth(std::span<const unsigned> cpus, uint64_t bytes);

}  // namespace prepack
