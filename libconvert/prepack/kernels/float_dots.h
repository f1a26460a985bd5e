#pragma once

// Products of vectors of floats, for angles between them.

#include <cstddef>

namespace prepack {

// Sums that are made side by side, and added up in f64: the same ones on every instruction set.
inline constexpr size_t kDotLanes = 32;

// Σ a[i] · b[i].
using DotFloatsFn = double(const float* a, const float* b, size_t count);

}  // namespace prepack
