#pragma once

// The machine that this process runs on, as far as kernels of consumers care, from the files in
// which Linux says it.

#include <cstdint>
#include <filesystem>
#include <string>

#include "prepack/base/cpu_features.h"

namespace prepack {

struct Machine {
  std::string cpu;  // "AMD EPYC 9554 64-Core Processor"; empty: not known
  CpuFeatures features;
  uint64_t cpus = 0;   // that the system has online
  uint64_t cores = 0;  // fewer than CPUs where each has two threads
  uint64_t numa_nodes = 1;
  uint64_t l2_bytes = 0;  // of one core; 0: not known
  uint64_t l3_bytes = 0;  // of one of them, which some cores share
  uint64_t memory_bytes = 0;
  uint64_t available_bytes = 0;
  uint64_t limit_bytes = 0;  // of the control group, as containers have it; 0: none

  // What a process may use at most.
  uint64_t UsableMemory() const {
    return limit_bytes != 0 && limit_bytes < memory_bytes ? limit_bytes : memory_bytes;
  }
};

// `root` is the folder with proc/ and sys/. What is not there or means nothing is left out.
Machine ReadMachine(const std::filesystem::path& root = "/");

}  // namespace prepack
