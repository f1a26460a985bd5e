#include "prepack/tune/timing.h"

#include <algorithm>
#include <cmath>

namespace prepack {
namespace {

constexpr double kConfidence = 1.96;  // standard deviations that hold 95 %
constexpr double kMatters = 0.02;

// How far the interval is from the median on both sides, at most.
double Spread(const Timing& timing) {
  return std::max(timing.high - timing.seconds, timing.seconds - timing.low);
}

}  // namespace

Timing Summarize(std::vector<double> samples) {
  std::ranges::sort(samples);
  const size_t count = samples.size();
  const size_t middle = count / 2;
  Timing timing{.samples = count};
  timing.seconds = count % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
  // The number of samples below the median is binomial.
  const auto n = static_cast<double>(count);
  const double half = kConfidence * std::sqrt(n) / 2;
  const double first = std::floor(n / 2 - half);
  const auto below = static_cast<size_t>(std::max(first, 0.0));
  timing.low = samples[below];
  timing.high = samples[count - 1 - below];
  return timing;
}

Timing operator+(const Timing& a, const Timing& b) {
  return {.seconds = a.seconds + b.seconds,
          .low = a.low + b.low,
          .high = a.high + b.high,
          .samples = std::min(a.samples, b.samples)};
}

Timing operator*(const Timing& timing, double times) {
  return {.seconds = timing.seconds * times,
          .low = timing.low * times,
          .high = timing.high * times,
          .samples = timing.samples};
}

bool IsDecided(const Timing& a, const Timing& b) {
  if (a.high < b.low || b.high < a.low) return true;
  const double least = std::min(a.seconds, b.seconds);
  return Spread(a) + Spread(b) + std::abs(a.seconds - b.seconds) <= kMatters * least;
}

bool IsRankingCertain(std::span<const Timing> timings) {
  for (size_t i = 0; i < timings.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!IsDecided(timings[i], timings[j])) return false;
    }
  }
  return true;
}

}  // namespace prepack
