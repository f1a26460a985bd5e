#pragma once

// Digests (weight_digests.h) of weights of few bits, without writing the weights anywhere. A group
// of an output channel holds no more than 16 different weights of 4 bits: they are computed once,
// and codes look them up. The lower half of a bf16 weight is zero, so of a factor only the lower
// half counts; these kernels are given those halves. Every version gives the same bits.

#include <cstddef>
#include <cstdint>

#include "prepack/kernels/strip_codes.h"
#include "prepack/kernels/weight_digests.h"

namespace prepack {

// Fields of 4 or 8 bits of bytes, the lowest first, less `offset`: out[8 / bits · count]. The
// differences fit into a byte.
using SplitSmallFieldsFn = void(const uint8_t* bytes, size_t count, uint32_t bits, int32_t offset,
                                int8_t* out);

// As DigestScaled and DigestSteps, of steps in a byte each. Scaled: of `groups` groups of `count`
// steps, one after the other, with a scale each; `rounding` is not kNone.
using DigestSmallScaledFn = uint32_t(const int8_t* steps, size_t count, const float* scales,
                                     size_t groups, Bf16Rounding rounding, const int16_t* factors);
using DigestSmallStepsFn = uint32_t(const int8_t* steps, size_t count, const int16_t* factors);

// As ScaleNibbles and ScaleNibbleLines, and then AddStripDigests; whatever the scales say,
// weights are rounded to bf16.
using DigestNibblesFn = void(const uint8_t* codes, size_t stride, size_t count,
                             const NibbleScales& scales, const int16_t* factors, uint32_t* digests);
using DigestNibbleLinesFn = DigestNibblesFn;

// As WidenQuads, and then the digests of whole numbers, four factors for each four input channels:
// adds to digests[i] that of output channel i.
using DigestQuadsFn = void(const int8_t* quads, size_t stride, size_t count, const int16_t* factors,
                           uint32_t* digests);

}  // namespace prepack
