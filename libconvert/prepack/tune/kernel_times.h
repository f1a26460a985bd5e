#pragma once

// The times of products on this machine, each measured once, however many modules and candidates
// have it.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/packed/folder.h"
#include "prepack/tune/runtime.h"
#include "prepack/tune/timing.h"
#include "prepack/tune/tune.h"

namespace prepack {

// A product that a candidate runs in each layer.
struct KernelWork {
  std::string target = {};
  PackedModule module;  // of a mixture that runs in one op, one of its modules
  uint64_t rows = 0;
  double times = 1;  // that it runs
  std::optional<ExpertsInOneOp> mixture = {};
};

struct KnownTime {
  Result<Timing> timing = Timing{};
  std::string implementation = {};
  bool is_reference = false;
};

// Of the experts of a layer, so many multiply so many rows each: {rows, experts}. Tokens are spread
// over the experts as evenly as they go.
std::vector<std::pair<uint64_t, uint64_t>> RowsOfExperts(uint64_t tokens, uint64_t experts,
                                                         uint64_t top_k);

class KernelTimes {
 public:
  // The machine must outlive it.
  explicit KernelTimes(const TuneMachine& machine) : machine_(machine) {}

  // Measures what is not known of these: they do the same in different ways, so they take turns.
  Status Measure(const std::vector<const KernelWork*>& rivals, double seconds);
  // Of one that was measured.
  const KnownTime& Of(const KernelWork& work) const { return FindEntry(work)->known; }

 private:
  struct Entry {
    std::string target = {};
    const Layout* layout = nullptr;
    PackRequest request = {};
    uint64_t rows = 0;
    std::optional<ExpertsInOneOp> mixture = {};
    KnownTime known = {};

    bool IsOf(const KernelWork& work) const;
  };
  struct Rival;

  const Entry* FindEntry(const KernelWork& work) const;
  // Prepares a rival's kernel, or says why it has none.
  void Prepare(Rival& rival) const;
  std::string WhyTooSlow(const KernelWork& work) const;
  void Race(std::vector<Rival>& rivals, double seconds) const;

  const TuneMachine& machine_;
  std::vector<Entry> entries_;
};

}  // namespace prepack
