#pragma once

// What verify does to every weight of the source: its steps become a digest that is compared with
// that of the weights that a kernel reads. A digest is
//
//     Σ bits(w[k]) · factors[k]   mod 2^32
//
// with random odd factors, so it changes with every single weight. Every version gives the same
// bits.

#include <cstddef>
#include <cstdint>

#include "prepack/kernels/strip_products.h"

namespace prepack {

enum class Bf16Rounding : uint8_t {
  kNone,
  kByInstruction,    // as VCVTNEPS2BF16: what is below 2^-126 becomes zero
  kNearest,          // to even
  kNearestOfFinite,  // the same, for less, where no number is NaN
};

// Of steps[k] · scale in f32, then rounded to bf16.
using DigestScaledFn = uint32_t(const float* steps, size_t count, float scale,
                                Bf16Rounding rounding, const uint32_t* factors);
// Of whole numbers below 2^15: their bits are those of an int32_t.
using DigestStepsFn = uint32_t(const float* steps, size_t count, const int16_t* factors);
// Adds to digests[i] that of output channel i of a strip, w is [count, kStripChannels].
using AddStripDigestsFn = void(const float* w, size_t count, const uint32_t* factors,
                               uint32_t* digests);

}  // namespace prepack
