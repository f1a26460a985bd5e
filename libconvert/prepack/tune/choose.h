#pragma once

// One option for each kind of module, so that the whole costs least: a knapsack with a choice per
// kind, whose budget is noise. Solved exactly: kinds are few, and of what some kinds can cost
// together only the combinations are kept that no other one beats in both cost and noise.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace prepack {

struct TuneOption {
  double cost = 0;   // what is to be small: seconds, bytes or noise
  double noise = 0;  // Σ over the modules of the kind of noise over signal
  double tie = 0;    // decides between choices of equal cost
};

// The places of the chosen options by kind; nullopt if every choice has more noise than `most`, or
// a kind has no option. `most`: none: any.
//
// Above 2^16 combinations that no other one beats, those are dropped that differ from a cheaper one
// by less than a millionth of its noise.
std::optional<std::vector<size_t>> ChooseOptions(std::span<const std::vector<TuneOption>> kinds,
                                                 const std::optional<double>& most);

// Noise over signal of a module, and of the mean of many: 0 dB is 1, infinite dB is 0.
double NoiseOfDecibel(double decibel);
double DecibelOfNoise(double noise);

}  // namespace prepack
