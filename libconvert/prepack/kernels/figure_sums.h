#ifndef PREPACK_KERNELS_FIGURE_SUMS_H_
#define PREPACK_KERNELS_FIGURE_SUMS_H_

// The sums behind the figures of a product (verify/products.h), of some output channels side by
// side. Every sum is compensated: the rounding errors are summed apart.

#include <array>
#include <cstddef>

namespace prepack {

inline constexpr size_t kFigureChannels = 4;

// Sums and their errors, one for each output channel. A sum that is not finite has any error.
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

}  // namespace prepack

#endif  // PREPACK_KERNELS_FIGURE_SUMS_H_
