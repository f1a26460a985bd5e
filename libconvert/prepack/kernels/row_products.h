#ifndef PREPACK_KERNELS_ROW_PRODUCTS_H_
#define PREPACK_KERNELS_ROW_PRODUCTS_H_

// What verify does to every weight of a model: words of codes become numbers, these are multiplied
// with their scale and rounded as a consumer rounds them, and a few rows of activations are
// multiplied with the result. Every version gives the same bits.

#include <cstddef>
#include <cstdint>

#include "prepack/kernels/strip_products.h"

namespace prepack {

// Fields of 4 or 8 bits of 32-bit words, the lowest first, less `offset`: out[32 / bits · count].
using SplitFieldsFn = void(const uint32_t* words, size_t count, uint32_t bits, int32_t offset,
                           float* out);

// out[i] = steps[i] · scale in f32; `to_bf16`: then rounded to bf16 as by the instruction
// VCVTNEPS2BF16 (RoundByInstruction in base/float_convert.h). They may be the same memory.
using ScaleStepsFn = void(const float* steps, size_t count, float scale, bool to_bf16, float* out);

// Sums of a row lie in so many places, each of its products in that of its index: they become one
// number by adding them up.
inline constexpr size_t kProductLanes = 8;
// So many products of a place are summed in f32, by fused multiply-adds from zero on, before they
// are added to its f64 sum.
inline constexpr size_t kShortSum = 32;

// sums[r][i % kProductLanes] += x[r][i] · w[i], sums is [rows, kProductLanes].
using AddRowProductsFn = void(const float* w, size_t count, const float* const* x, size_t rows,
                              double* sums);

// Codes of kStripChannels output channels for one input channel lie in eight bytes, the first
// lowest. Of `count` input channels, whose bytes lie `stride` apart:
// w[j · kStripChannels + i] = ((code ^ flip) − zeros[i]) · scales[i]; `to_bf16` as above.
struct NibbleScales {
  float zeros[kStripChannels];
  float scales[kStripChannels];
  uint32_t flip;
};
using ScaleNibblesFn = void(const uint8_t* codes, size_t stride, size_t count,
                            const NibbleScales& scales, bool to_bf16, float* w);

// Signed bytes of four input channels of kStripChannels output channels, [kStripChannels, 4], as
// pairs of two input channels each: w is [2, kStripChannels, 2]. `count` such fours, `stride` bytes
// apart.
using WidenQuadsFn = void(const int8_t* quads, size_t stride, size_t count, int16_t* w);

}  // namespace prepack

#endif  // PREPACK_KERNELS_ROW_PRODUCTS_H_
