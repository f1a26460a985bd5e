#ifndef PREPACK_KERNELS_CODE_DIGESTS_BODY_H_
#define PREPACK_KERNELS_CODE_DIGESTS_BODY_H_

// The bodies of code_digests.h: the scalar twins, and the choice of a way to round. Without
// ordinary scales that takes twice as many instructions.

#if defined(PREPACK_AVX512)
#include "prepack/kernels/code_digests_avx512_body.h"
#elif !defined(PREPACK_SCALAR)
#include "prepack/kernels/code_digests_lanes_body.h"
#endif

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

namespace {

uint32_t DigestOfBF16(float weight, int16_t factor) {
  return BitsOf(weight) * static_cast<uint32_t>(static_cast<int32_t>(factor));
}

uint32_t DigestSmallOneByOne(const int8_t* steps, size_t count, float scale, Bf16Rounding rounding,
                             const int16_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < count; ++i) {
    digest += DigestOfBF16(ToBF16(static_cast<float>(steps[i]) * scale, rounding), factors[i]);
  }
  return digest;
}

}  // namespace

void SplitSmallFields(const uint8_t* bytes, size_t count, uint32_t bits, int32_t offset,
                      int8_t* out) {
  const int32_t mask = (1 << bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    for (uint32_t shift = 0; shift < 8; shift += bits) {
      *out++ = static_cast<int8_t>((bytes[i] >> shift & mask) - offset);
    }
  }
}

uint32_t DigestSmallScaled(const int8_t* steps, size_t count, const float* scales, size_t groups,
                           Bf16Rounding rounding, const int16_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < groups; ++i) {
    digest +=
        DigestSmallOneByOne(steps + i * count, count, scales[i], rounding, factors + i * count);
  }
  return digest;
}

uint32_t DigestSmallSteps(const int8_t* steps, size_t count, const int16_t* factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < count; ++i) {
    digest += static_cast<uint32_t>(static_cast<int32_t>(steps[i]) * factors[i]);
  }
  return digest;
}

namespace {

uint32_t DigestOfNibble(const NibbleScales& scales, size_t i, uint32_t code, int16_t factor) {
  const float value = (static_cast<float>(code ^ scales.flip) - scales.zeros[i]) * scales.scales[i];
  return DigestOfBF16(ToBF16(value, Bf16Rounding::kByInstruction), factor);
}

}  // namespace

void DigestNibbles(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                   const int16_t* factors, uint32_t* digests) {
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < kStripChannels; ++i) {
      const uint32_t code = codes[j * stride + i / 2] >> (i % 2 * 4) & 15U;
      digests[i] += DigestOfNibble(scales, i, code, factors[j]);
    }
  }
}

void DigestNibbleLines(const uint8_t* codes, size_t stride, size_t count,
                       const NibbleScales& scales, const int16_t* factors, uint32_t* digests) {
  for (size_t i = 0; i < kStripChannels; ++i) {
    for (size_t j = 0; j < 8 * count; ++j) {
      const uint32_t code = codes[i * stride + j / 2] >> (j % 2 * 4) & 15U;
      digests[i] += DigestOfNibble(scales, i, code, factors[j]);
    }
  }
}

void DigestQuads(const int8_t* quads, size_t stride, size_t count, const int16_t* factors,
                 uint32_t* digests) {
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < 4 * kStripChannels; ++i) {
      const int32_t product = int32_t{quads[j * stride + i]} * factors[4 * j + i % 4];
      digests[i / 4] += static_cast<uint32_t>(product);
    }
  }
}

#else

#ifndef PREPACK_AVX512  // which has nothing faster

uint32_t DigestSmallScaled(const int8_t* steps, size_t count, const float* scales, size_t groups,
                           Bf16Rounding rounding, const int16_t* factors) {
  if (AreOrdinary(scales, groups)) rounding = Bf16Rounding::kNearestOfFinite;
  if (rounding == Bf16Rounding::kNearestOfFinite) {
    return DigestSmall<Bf16Rounding::kNearestOfFinite>(steps, count, scales, groups, factors);
  }
  return rounding == Bf16Rounding::kByInstruction
             ? DigestSmall<Bf16Rounding::kByInstruction>(steps, count, scales, groups, factors)
             : DigestSmall<Bf16Rounding::kNearest>(steps, count, scales, groups, factors);
}

#endif

namespace {

template <Bf16Rounding kRounding>
void DigestColumns(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                   const int16_t* factors, uint32_t* digests) {
  while (count >= kBlockCodes) {
    const size_t blocks = count / kBlockCodes < kMostBlocks ? count / kBlockCodes : kMostBlocks;
    DigestStrip<kRounding>(codes, stride, blocks, scales, factors, digests);
    codes += blocks * kBlockCodes * stride;
    factors += blocks * kBlockCodes;
    count -= blocks * kBlockCodes;
  }
  if (count != 0) Below().digest_nibbles(codes, stride, count, scales, factors, digests);
}

}  // namespace

void DigestNibbles(const uint8_t* codes, size_t stride, size_t count, const NibbleScales& scales,
                   const int16_t* factors, uint32_t* digests) {
  if (AreOrdinary(scales)) {
    DigestColumns<Bf16Rounding::kNearestOfFinite>(codes, stride, count, scales, factors, digests);
  } else {
    DigestColumns<Bf16Rounding::kByInstruction>(codes, stride, count, scales, factors, digests);
  }
}

#ifndef PREPACK_AVX512

void DigestNibbleLines(const uint8_t* codes, size_t stride, size_t count,
                       const NibbleScales& scales, const int16_t* factors, uint32_t* digests) {
  const size_t done = AreOrdinary(scales) ? DigestLines<Bf16Rounding::kNearestOfFinite>(
                                                codes, stride, count, scales, factors, digests)
                                          : DigestLines<Bf16Rounding::kByInstruction>(
                                                codes, stride, count, scales, factors, digests);
  if (done == count) return;
  Below().digest_nibble_lines(codes + 4 * done, stride, count - done, scales, factors + 8 * done,
                              digests);
}

#endif

#endif

}  // namespace prepack::PREPACK_LEVEL

#endif  // PREPACK_KERNELS_CODE_DIGESTS_BODY_H_
