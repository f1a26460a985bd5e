#pragma once

// What a set of measured times says. Others use the machine while something is measured, so times
// are never averaged: the median counts, with the interval that it lies in with 95 % confidence.

#include <cstddef>
#include <span>
#include <vector>

namespace prepack {

struct Timing {
  double seconds = 0;  // the median
  double low = 0;      // the interval that it lies in
  double high = 0;
  size_t samples = 0;

  friend bool operator==(const Timing&, const Timing&) = default;
};

// By the order of the samples, whatever their distribution: of fewer than six samples the interval
// is all of them. Requires a sample.
Timing Summarize(std::vector<double> samples);

// Of products that run one after another.
Timing operator+(const Timing& a, const Timing& b);
// Of a product that runs `times` times.
Timing operator*(const Timing& timing, double times);

// Are the two apart, or both so well known that what is left between them matters to nobody (2 %)?
bool IsDecided(const Timing& a, const Timing& b);
// Is it decided for every two of them?
bool IsRankingCertain(std::span<const Timing> timings);

}  // namespace prepack
