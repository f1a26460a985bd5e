#pragma once

// The sums behind the figures of a product (verify/products.h) and of a comparison of weights
// (diff/float_differences.h).

#include <array>
#include <cstddef>

namespace prepack {

inline constexpr size_t kFigureChannels = 4;

// Sums and their errors, one for each of some output channels side by side. Every sum is
// compensated: the rounding errors are summed apart. A sum that is not finite has any error.
struct FigureLanes {
  using Lanes = std::array<double, kFigureChannels>;

  Lanes signal = {};  // Σ truth²
  Lanes signal_error = {};
  Lanes noise = {};  // Σ (truth − judged)²
  Lanes noise_error = {};
  Lanes value = {};  // Σ judged²
  Lanes value_error = {};
  Lanes dot = {};  // Σ truth · judged
  Lanes dot_error = {};
  Lanes largest = {};  // |truth − judged|
};

// Adds `rows` outputs of kFigureChannels channels, which lie `stride` elements apart. Where what is
// judged is not finite, the difference is infinite.
using AddFiguresFn = void(const double* truth, const float* judged, size_t stride, size_t rows,
                          FigureLanes& lanes);

inline constexpr size_t kDifferenceLanes = 8;

// How far floats a and b are from each other: every eighth pair is of the same lane. Counts are
// doubles, because a vector adds those as it does the sums.
struct DifferenceLanes {
  using Lanes = std::array<double, kDifferenceLanes>;

  Lanes signal = {};    // Σ a²
  Lanes noise = {};     // Σ (a − b)²; not finite if an a or b is not
  Lanes largest = {};   // |a − b|
  Lanes unequal = {};   // a ≠ b
  Lanes beyond = {};    // |a − b| > tolerance · max(|a|, |b|)
  Lanes relative = {};  // |a − b| > relative · max(|a|, |b|)
};

struct DifferenceBounds {
  double tolerance = 0;
  double relative = 0;
};

// Adds `rows` times kDifferenceLanes pairs.
using AddDifferencesFn = void(const float* a, const float* b, size_t rows,
                              const DifferenceBounds& bounds, DifferenceLanes& lanes);

}  // namespace prepack
