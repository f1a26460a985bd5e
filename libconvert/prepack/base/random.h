#pragma once

// Reproducible pseudo-random numbers: the same on every machine and with every standard library,
// because fingerprints and reported figures depend on them. (The distributions of <random> are
// implementation-defined.)

#include <cstdint>
#include <string_view>

namespace prepack {

// FNV-1a: a seed of which every name has its own.
constexpr uint64_t SeedOfName(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return hash;
}

// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  // In 0 .. bound - 1. The bias is below 2^-32 for the small bounds that we use.
  constexpr uint64_t Below(uint64_t bound) { return (Next() >> 32) * bound >> 32; }

  // In [0, 1).
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

  // Mean 0, variance 1: the sum of twelve uniforms (Irwin-Hall), which is Gaussian within the 6
  // sigma that it can reach, and needs nothing from libm that could differ between machines.
  constexpr double Gaussian() {
    double sum = -6.0;
    for (int i = 0; i < 12; ++i) sum += Uniform();
    return sum;
  }

 private:
  uint64_t state_;
};

}  // namespace prepack
