#pragma once

// How the models in gemm/ decode packed codes into a strip (strip_products.h), whatever the
// layout. Every version gives the same bits.

#include <cstddef>
#include <cstdint>

#include "prepack/kernels/strip_products.h"

namespace prepack {

// What nibbles of a strip stand for: ((code ^ flip) − zeros[i]) · scales[i] for output channel i,
// in f32; `to_bf16`: then rounded as the instruction VCVTNEPS2BF16 does (RoundByInstruction in
// base/float_convert.h).
struct NibbleScales {
  float zeros[kStripChannels];
  float scales[kStripChannels];
  uint32_t flip;
  bool to_bf16;
};

// The codes of kStripChannels output channels for one input channel lie in eight bytes, the first
// lowest. Of `count` input channels, whose bytes lie `stride` apart; w is [count, kStripChannels].
using ScaleNibblesFn = void(const uint8_t* codes, size_t stride, size_t count,
                            const NibbleScales& scales, float* w);

// The codes of eight input channels of one output channel lie in four bytes, the first lowest. Of
// kStripChannels output channels, whose bytes lie `stride` apart, and `count` such fours of bytes;
// w is [8 · count, kStripChannels].
using ScaleNibbleLinesFn = void(const uint8_t* codes, size_t stride, size_t count,
                                const NibbleScales& scales, float* w);

// Signed bytes of four input channels of kStripChannels output channels, [kStripChannels, 4], as
// pairs of two input channels each: w is [2, kStripChannels, 2]. `count` such fours, `stride` bytes
// apart.
using WidenQuadsFn = void(const int8_t* quads, size_t stride, size_t count, int16_t* w);

}  // namespace prepack
