#pragma once

// Digests (weight_digests.h) of weights of one byte each, FP8 for one, without writing the weights
// anywhere: codes look up what they stand for, in bf16. As in code_digests.h only the lower halves
// of the factors count. Every version gives the same bits.

#include <cstddef>
#include <cstdint>

namespace prepack {

// What each of the 256 codes stands for: the upper half of a float whose lower half is zero.
struct ByteWeights {
  uint16_t upper[256];
};

// Of an output channel, whose codes lie one after the other.
using DigestBytesFn = uint32_t(const uint8_t* codes, size_t count, const ByteWeights& weights,
                               const int16_t* factors);

// Output channels of a block of pairs.
inline constexpr size_t kBytePairChannels = 32;

// Of a block of output channels, each with two input channels side by side: code (i, j) lies at
// j / 2 · stride + 2 · i + j % 2. `count` pairs of input channels. Adds to digests[i] that of
// output channel i.
using DigestBytePairsFn = void(const uint8_t* pairs, size_t stride, size_t count,
                               const ByteWeights& weights, const int16_t* factors,
                               uint32_t* digests);

}  // namespace prepack
