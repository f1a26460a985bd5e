#pragma once

// Products that do the same work in different ways are measured against each other: in turn, so
// that whatever else the machine does falls upon all of them, and for no longer than it takes to
// rank them.

#include <cstddef>
#include <span>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/tune/timing.h"

namespace prepack {

class TimedProduct {
 public:
  TimedProduct() = default;
  TimedProduct(const TimedProduct&) = delete;
  TimedProduct& operator=(const TimedProduct&) = delete;
  virtual ~TimedProduct() = default;

  // Seconds that one product took, on weights that no cache held.
  virtual Result<double> Time() = 0;
};

struct MeasureLimits {
  size_t least = 7;    // samples of a product, unless time is up or it is far behind
  size_t most = 45;    // samples of a product
  double seconds = 1;  // of all of them; each gets one sample in any case
};

// A first run of each does not count, unless it took so long that warming up cannot matter. An
// error of a product ends it: it takes the place of its timing.
std::vector<Result<Timing>> MeasureInTurn(std::span<TimedProduct* const> products,
                                          const MeasureLimits& limits);

}  // namespace prepack
