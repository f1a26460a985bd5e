#pragma once

#include <cmath>
#include <limits>
#include <optional>

namespace prepack {

// The ratio of two sums of squares in dB, 10 · log10(signal / noise): infinite without noise,
// -infinite when the noise is infinite. nullopt when the signal is zero or not finite, or the noise
// is NaN: such sums prove nothing.
inline std::optional<double> Decibel(double signal, double noise) {
  if (!std::isfinite(signal) || signal == 0 || std::isnan(noise)) return std::nullopt;
  if (noise == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(signal / noise);
}

}  // namespace prepack
