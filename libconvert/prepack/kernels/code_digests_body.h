#pragma once

// The bodies of code_digests.h: the scalar twins, and the choice of a way to round. Without
// ordinary scales that takes twice as many instructions.

#ifndef PREPACK_SCALAR

namespace prepack::PREPACK_LEVEL {
namespace {

// The upper halves of the weights have been summed.
[[gnu::always_inline]] inline uint32_t DigestOf(Vector sums) {
  return static_cast<uint32_t>(Total(sums)) << 16;
}

// Of a multiple of kVectorBytes.
[[gnu::always_inline]] inline int8_t LeastStep(const int8_t* steps, size_t count) {
  Vector least = Load(steps);
  for (size_t i = kVectorBytes; i < count; i += kVectorBytes) {
    least = LesserSigned8(least, Load(steps + i));
  }
  return LeastByte(least);
}

}  // namespace
}  // namespace prepack::PREPACK_LEVEL

#endif

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
  return DigestOfBF16(ToBF16(value, kByInstruction), factor);
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

namespace {

constexpr size_t kHalfVector = kVectorBytes / 2;

// Weights come from memory for the first time here, or again after megabytes of others: how far
// ahead they are asked for.
constexpr size_t kAhead = 2048;
constexpr size_t kAheadOfRows = 128;  // rows, where few bytes of each are read

}  // namespace

void SplitSmallFields(const uint8_t* bytes, size_t count, uint32_t bits, int32_t offset,
                      int8_t* out) {
  const Vector less = Bytes(offset);
  size_t i = 0;
  for (; bits == 4 && i + kHalfVector <= count; i += kHalfVector, out += kVectorBytes) {
    PrefetchRows(bytes + i + kAhead, 0, 1, kHalfVector);
    Store(out, Sub8(SplitNibbles(bytes + i), less));
  }
  for (; bits == 8 && i + kVectorBytes <= count; i += kVectorBytes, out += kVectorBytes) {
    PrefetchRows(bytes + i + kAhead, 0, 1, kVectorBytes);
    Store(out, Sub8(Load(bytes + i), less));
  }
  if (i < count) Below().split_small_fields(bytes + i, count - i, bits, offset, out);
}

uint32_t DigestSmallSteps(const int8_t* steps, size_t count, const int16_t* factors) {
  Vector first = Numbers32(0);
  Vector second = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorBytes <= count; i += kVectorBytes) {
    const size_t next = i + kHalfVector;
    first = Add32(first, MultiplyPairs(WidenSigned(steps + i), Load(factors + i)));
    second = Add32(second, MultiplyPairs(WidenSigned(steps + next), Load(factors + next)));
  }
  const auto digest = static_cast<uint32_t>(Total(Add32(first, second)));
  return digest + Below().digest_small_steps(steps + i, count - i, factors + i);
}

namespace {

// Groups whose tables are made before any is used: making one takes long, but several at a time
// take hardly longer.
constexpr size_t kTables = 16;

// At most kTables groups, of a multiple of kVectorBytes steps. False if steps of one differ by more
// than 15: the digest is then none.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline bool DigestNearSteps(const int8_t* steps, size_t count,
                                                   const float* scales, size_t groups,
                                                   const int16_t* factors, uint32_t& digest) {
  StoredTable tables[kTables];
  for (size_t i = 0; i < groups; ++i) {
    tables[i] = TableOfSteps<kRounding>(steps + i * count, count, scales[i]);
  }
  Vector sums = Numbers32(0);
  Vector all = Numbers32(0);
  for (size_t i = 0; i < groups; ++i) {
    const WeightTable table = LoadTable(tables[i]);
    const Vector first = Bytes(tables[i].first);
    for (size_t end = (i + 1) * count, j = i * count; j < end; j += kVectorBytes) {
      const Vector codes = Sub8(Load(steps + j), first);
      all = Or(all, codes);
      sums = AddCodes(sums, codes, table, LoadStepFactors(factors + j));
    }
  }
  digest = DigestOf(sums);
  return IsZero(And(all, Bytes(0xF0)));
}

// Of any steps.
template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline uint32_t DigestAnySteps(const int8_t* steps, size_t count,
                                                      float scale, const int16_t* factors) {
  const Floats factor = RepeatFloat(scale);
  Vector digest = Numbers32(0);
  size_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    const Floats products = MultiplyFloats(ToFloats(WidenSignedToWords(steps + i)), factor);
    const Vector weights = ToBF16<kRounding>(BitsOf(products));
    digest = Add32(digest, Multiply32(weights, WidenNumbers(factors + i)));
  }
  return static_cast<uint32_t>(Total(digest)) +
         Below().digest_small_scaled(steps + i, count - i, &scale, 1, kRounding, factors + i);
}

template <Bf16Rounding kRounding>
uint32_t DigestSmall(const int8_t* steps, size_t count, const float* scales, size_t groups,
                     const int16_t* factors) {
  uint32_t digest = 0;
  size_t i = 0;
  while (i < groups && count != 0 && count % kVectorBytes == 0) {
    const size_t some = groups - i < kTables ? groups - i : kTables;
    uint32_t own = 0;
    if (!DigestNearSteps<kRounding>(steps + i * count, count, scales + i, some, factors + i * count,
                                    own)) {
      break;  // the steps have 8 bits: it is of no use to try further groups
    }
    digest += own;
    i += some;
  }
  for (; i < groups; ++i) {
    digest += DigestAnySteps<kRounding>(steps + i * count, count, scales[i], factors + i * count);
  }
  return digest;
}

}  // namespace

uint32_t DigestSmallScaled(const int8_t* steps, size_t count, const float* scales, size_t groups,
                           Bf16Rounding rounding, const int16_t* factors) {
  uint32_t digest = 0;
  if (AreOrdinary(scales, groups)) rounding = kNearestOfFinite;
  WithRounding<kByInstruction, kNearest, kNearestOfFinite>(rounding, [&]<Bf16Rounding kRounding>() {
    digest = DigestSmall<kRounding>(steps, count, scales, groups, factors);
  });
  return digest;
}

void DigestQuads(const int8_t* quads, size_t stride, size_t count, const int16_t* factors,
                 uint32_t* digests) {
  constexpr size_t kParts = 4 * kStripChannels / kHalfVector;
  Vector sums[kParts];  // two of each output channel
  for (Vector& sum : sums) sum = Numbers32(0);
  for (size_t j = 0; j < count; ++j, quads += stride) {
    PrefetchRows(quads + kAhead, 0, 1, 4 * kStripChannels);
    const Vector own = RepeatWord(factors + 4 * j);
    for (size_t i = 0; i < kParts; ++i) {
      sums[i] = Add32(sums[i], MultiplyPairs(WidenSigned(quads + i * kHalfVector), own));
    }
  }
#pragma GCC unroll 2
  for (size_t i = 0; i < kParts; i += 2, digests += kVectorFloats) {
    Store(digests, Add32(Load(digests), AddNeighbours(sums[i], sums[i + 1])));
  }
}

namespace {

// What DigestStrip takes: blocks of so many input channels, whose codes for one pair of output
// channels a register holds, a byte each; and how many blocks at most are digested with the same
// tables in the registers.
constexpr size_t kBlockCodes = kVectorBytes;
constexpr size_t kMostBlocks = 128 / kBlockCodes;

// A register for each two output channels, of which the first has the low nibbles.
struct StripCodes {
  Vector pairs[kStripChannels / 2];
};

[[gnu::always_inline]] inline void TransposeCodes(const uint8_t* codes, size_t stride,
                                                  StripCodes& strip) {
  if (stride == sizeof(uint64_t)) {
    PrefetchRows(codes + kAhead, 0, 1, kBlockCodes * sizeof(uint64_t));
  } else {
    PrefetchRows(codes + kAheadOfRows * stride, stride, kBlockCodes, 1);
  }
  for (size_t j = 0; j < kStripChannels / 2; ++j) strip.pairs[j] = LoadCodes(codes, stride, j);
  // From [j | input channel % 2, pair] to [pair | j, input channel % 2].
  RotateIndex<1, 4>(strip.pairs);
}

// Adds to each digest the sum of the numbers of its register: those of the upper halves of weights.
[[gnu::always_inline]] inline void AddDigests(const Vector (&sums)[kStripChannels],
                                              uint32_t* digests) {
  static_assert(kStripChannels == 16);
  Vector fours[4];  // of four registers each: every lane has a part of their sums
  for (size_t i = 0; i < 4; ++i) {
    const Vector* from = sums + 4 * i;
    const Vector first = Add32(UnpackLow<4>(from[0], from[1]), UnpackHigh<4>(from[0], from[1]));
    const Vector second = Add32(UnpackLow<4>(from[2], from[3]), UnpackHigh<4>(from[2], from[3]));
    fours[i] = Add32(UnpackLow<8>(first, second), UnpackHigh<8>(first, second));
  }
  for (size_t i = 0; i < 4; i += kLanes, digests += kVectorFloats) {
    Vector totals = AddLanePairs(fours[i], fours[i + 1]);
    if constexpr (kLanes == 4) totals = AddLanePairs(totals, AddLanePairs(fours[2], fours[3]));
    Store(digests, Add32(Load(digests), ShiftLeft32<16>(totals)));
  }
}

template <Bf16Rounding kRounding>
[[gnu::always_inline]] inline void DigestStrip(const uint8_t* codes, size_t stride, size_t blocks,
                                               const NibbleScales& scales, const int16_t* factors,
                                               uint32_t* digests) {
  StripCodes strips[kMostBlocks];
  CodeFactors own[kMostBlocks];
  for (size_t block = 0; block < blocks; ++block) {
    TransposeCodes(codes + block * kBlockCodes * stride, stride, strips[block]);
    own[block] = LoadFactors(factors + block * kBlockCodes);
  }
  Vector sums[kStripChannels];
  for (size_t i = 0; i < kStripChannels; i += 2) {
    const WeightTable even = NibbleTable<kRounding>(scales.flip, scales.zeros[i], scales.scales[i]);
    const WeightTable odd =
        NibbleTable<kRounding>(scales.flip, scales.zeros[i + 1], scales.scales[i + 1]);
    sums[i] = Numbers32(0);
    sums[i + 1] = Numbers32(0);
    for (size_t block = 0; block < blocks; ++block) {
      const Vector pair = strips[block].pairs[i / 2];
      sums[i] = AddCodes(sums[i], LowCodes(pair), even, own[block]);
      sums[i + 1] = AddCodes(sums[i + 1], LowCodes(ShiftRight<4>(pair)), odd, own[block]);
    }
  }
  AddDigests(sums, digests);
}

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
  WithRounding<kByInstruction, kNearestOfFinite>(RoundingOf(scales), [&]<Bf16Rounding kRounding>() {
    DigestColumns<kRounding>(codes, stride, count, scales, factors, digests);
  });
}

#endif

}  // namespace prepack::PREPACK_LEVEL
