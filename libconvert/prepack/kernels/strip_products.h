#pragma once

// The inner loops of the models in gemm/: products of rows of activations with a strip of weights.
//
// A strip holds kStripChannels output channels side by side: w is [count, kStripChannels]. Each
// output has a sum of its own, to which products are added one after the other, k ascending, so
// that every version gives the same bits.

#include <cstddef>
#include <cstdint>

namespace prepack {

inline constexpr size_t kStripChannels = 16;

// A row of activations, from the first input channel of the strip on, and its kStripChannels sums.
template <typename X, typename Sum>
struct StripRow {
  const X* x;
  Sum* sums;
};
using FloatStripRow = StripRow<float, float>;
using PairStripRow = StripRow<int16_t, int32_t>;

// A product is rounded to f32 before it is added.
using AddFloatProductsFn = void(const FloatStripRow* rows, size_t row_count, const float* w,
                                size_t count);
// Two input channels at a time: x holds 2 · count numbers, w is [count, kStripChannels, 2]. Sums
// wrap around. No two neighbours in x may be −2^15.
using AddPairProductsFn = void(const PairStripRow* rows, size_t row_count, const int16_t* w,
                               size_t count);
// sums[i] = a[i] · b[i] + sums[i], rounded once.
using FuseProductsFn = void(const float* a, const float* b, size_t count, float* sums);

}  // namespace prepack
