#include "prepack/tune/measure.h"

#include <algorithm>
#include <utility>

#include "prepack/base/progress.h"

namespace prepack {
namespace {

constexpr double kLongRun = 0.25;  // seconds
// A product that is behind by such a factor will not catch up: few samples are enough.
constexpr double kFarBehind = 3;
constexpr size_t kSamplesFarBehind = 3;

struct Measured {
  TimedProduct* product;
  std::vector<double> samples = {};
  bool warm = false;
  Status failure = {};

  bool Goes() const { return failure.ok(); }
};

class Race {
 public:
  Race(std::span<TimedProduct* const> products, const MeasureLimits& limits) : limits_(limits) {
    for (TimedProduct* product : products) runners_.push_back({.product = product});
  }

  void Run() {
    while (true) {
      const std::vector<Timing> timings = Timings();
      bool ran = false;
      for (Measured& runner : runners_) {
        if (!WantsMore(runner, timings)) continue;
        Sample(runner);
        ran = true;
      }
      if (!ran) return;
    }
  }

  std::vector<Result<Timing>> Results() {
    std::vector<Result<Timing>> results;
    for (Measured& runner : runners_) {
      if (runner.Goes()) {
        results.emplace_back(Summarize(std::move(runner.samples)));
      } else {
        results.emplace_back(std::move(runner.failure));
      }
    }
    return results;
  }

 private:
  std::vector<Timing> Timings() const {
    std::vector<Timing> timings;
    for (const Measured& runner : runners_) {
      if (runner.Goes() && !runner.samples.empty()) timings.push_back(Summarize(runner.samples));
    }
    return timings;
  }

  bool WantsMore(const Measured& runner, const std::vector<Timing>& timings) const {
    if (!runner.Goes()) return false;
    if (runner.samples.empty()) return true;
    if (used_ >= limits_.seconds || runner.samples.size() >= limits_.most) return false;
    const Timing own = Summarize(runner.samples);
    const double best = std::ranges::min(timings, {}, &Timing::seconds).seconds;
    if (own.samples >= kSamplesFarBehind && own.low > kFarBehind * best) return false;
    if (own.samples < limits_.least) return true;
    return !std::ranges::all_of(
        timings, [&](const Timing& other) { return other == own || IsDecided(own, other); });
  }

  void Sample(Measured& runner) {
    if (CancellationRequested()) {
      runner.failure = Interrupted("measuring");
      return;
    }
    Result<double> seconds = runner.product->Time();
    if (!seconds.ok()) {
      runner.failure = std::move(seconds).status();
      return;
    }
    used_ += *seconds;
    const bool counts = runner.warm || *seconds >= kLongRun;
    runner.warm = true;
    if (counts) runner.samples.push_back(*seconds);
  }

  const MeasureLimits& limits_;
  std::vector<Measured> runners_;
  double used_ = 0;
};

}  // namespace

std::vector<Result<Timing>> MeasureInTurn(std::span<TimedProduct* const> products,
                                          const MeasureLimits& limits) {
  Race race(products, limits);
  race.Run();
  return race.Results();
}

}  // namespace prepack
