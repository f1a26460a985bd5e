#ifndef PREPACK_KERNELS_AWQ_GEMM_H_
#define PREPACK_KERNELS_AWQ_GEMM_H_

// The nibble order of AWQ's GEMM layout, and turning its K-major words into rows of codes (mirrors
// AutoAWQ 0.2.9, awq/modules/linear/gemm.py: WQLinear_GEMM.from_linear).
//
// One 32-bit word holds eight adjacent output channels of one input channel:
//
//     bits      0–3  4–7  8–11 12–15 16–19 20–23 24–27 28–31
//     channel    0    2    4     6     1     3     5     7
//
// Channels 0 … 7 with codes 0 … 7 are the word 75316420, bytes 20 64 31 75.

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/nibble_transpose.h"

namespace prepack {

inline constexpr uint64_t kAwqCodesPerWord = 8;

// Which nibble of its word holds a channel, 0 … 7.
constexpr unsigned AwqNibble(unsigned channel) {
  return channel / 2 + 4 * (channel % 2);
}
// The inverse.
constexpr unsigned AwqChannel(unsigned nibble) {
  return 2 * (nibble % 4) + nibble / 4;
}
static_assert(AwqNibble(1) == 4 && AwqNibble(6) == 3 && AwqChannel(3) == 6);

// Input channels that one call takes at most: what is in flight then fits into an L1 cache.
inline constexpr size_t kAwqTileCols = 512;

// Where the codes of the 16 channels of two words go, in the order of the channels; nullptr for
// those that are not wanted.
using AwqTileRows = std::array<uint8_t*, kTransposeRows>;

// Writes `cols` ≤ kAwqTileCols codes of each wanted channel, two per byte, the even input channel
// in the low half; the last half byte of an odd number is zero. Input channel k of the tile has its
// words at `words` + k · stride: two of them, or one, and then rows 8 … 15 must not be wanted.
void UnpackAwqTile(const NibbleTranspose& transpose, const uint8_t* words, size_t stride,
                   size_t word_count, size_t cols, const AwqTileRows& rows);

}  // namespace prepack

#endif  // PREPACK_KERNELS_AWQ_GEMM_H_
