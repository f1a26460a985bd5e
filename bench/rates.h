#pragma once

// What the benchmarks of kernels share: memory to work on, and the rates that were reached.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/memory.h"
#include "prepack/base/random.h"

namespace prepack {

// Source and destination, at the start of a page and in the middle of one: as a conversion has its
// buffers, no access of a register's size crosses a cache line. With both at the same offset in
// their pages some CPUs copy several times slower (rep movsb of Zen 3 and 4): half a page between
// them gives memcpy its full speed, so that the ratios are honest.
class Buffers {
 public:
  explicit Buffers(size_t bytes) {
    from_.resize(bytes);
    to_.resize(bytes + kSkew);
    SplitMix64 random(1);
    for (std::byte& byte : from_) byte = static_cast<std::byte>(random.Below(256));
  }
  std::span<const std::byte> From(size_t offset, size_t bytes) const {
    return std::span<const std::byte>(from_).subspan(offset, bytes);
  }
  std::span<std::byte> To(size_t offset, size_t bytes) {
    return std::span<std::byte>(to_).subspan(offset + kSkew, bytes);
  }

 private:
  static constexpr size_t kSkew = 2048;
  PageBuffer from_;
  PageBuffer to_;
};

// Collects the best rate of every benchmark, to be printed as one table.
class RateReporter : public benchmark::ConsoleReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const auto rate = run.counters.find("bytes_per_second");
      if (run.error_occurred || rate == run.counters.end()) continue;
      double& best = rates_[run.run_name.function_name];
      best = std::max(best, rate->second.value / 1e9);
    }
  }

  // In GB/s; zero for what was filtered out.
  double Best(const std::string& name) const {
    const auto found = rates_.find(name);
    return found == rates_.end() ? 0 : found->second;
  }

 private:
  std::map<std::string, double> rates_;
};

}  // namespace prepack
