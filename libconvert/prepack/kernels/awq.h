#pragma once

// The two orders of nibbles that AWQ stores.

#include <cstddef>
#include <cstdint>

namespace prepack {

// The nibble order of AWQ's GEMM layout (mirrors AutoAWQ 0.2.9, awq/modules/linear/gemm.py:
// WQLinear_GEMM.from_linear).
//
// One 32-bit word holds eight adjacent output channels of one input channel:
//
//     bits      0–3  4–7  8–11 12–15 16–19 20–23 24–27 28–31
//     channel    0    2    4     6     1     3     5     7
//
// Channels 0 … 7 with codes 0 … 7 are the word 75316420, bytes 20 64 31 75.

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

// Words of AWQ's GEMM layout with their channels in order, channel 0 in the lowest
// nibble:
//
//     in    c7 c5 c3 c1  c6 c4 c2 c0      (high nibble first)
//     out   c7 c6 c5 c4  c3 c2 c1 c0

constexpr uint32_t AwqWordInOrder(uint32_t word) {
  // c7 c5 c6 c4  c3 c1 c2 c0: the bytes in the middle change places, and then nibbles.
  const uint32_t bytes = (word ^ word >> 8) & 0x0000FF00;
  word ^= bytes ^ bytes << 8;
  const uint32_t nibbles = (word ^ word >> 4) & 0x00F000F0;
  return word ^ nibbles ^ nibbles << 4;
}
static_assert(AwqWordInOrder(0x75316420) == 0x76543210);

// The inverse.
constexpr uint32_t AwqWordFromOrder(uint32_t word) {
  const uint32_t nibbles = (word ^ word >> 4) & 0x00F000F0;
  word ^= nibbles ^ nibbles << 4;
  const uint32_t bytes = (word ^ word >> 8) & 0x0000FF00;
  return word ^ bytes ^ bytes << 8;
}
static_assert(AwqWordFromOrder(0x76543210) == 0x75316420);

// Brings the words of `cols` input channels, of `channels` output channels each, into that order,
// or back. Input channel k is at columns + k · column_stride, and goes to out + k · out_stride;
// both have any alignment. `out` may be `columns` if the strides are the same.
using OrderAwqColumnsFn = void(const uint8_t* columns, size_t column_stride, size_t cols,
                               size_t channels, uint8_t* out, size_t out_stride);

// Codes of AWQ's GEMV_FAST layout, which llm-awq writes too (mirrors AutoAWQ 0.2.9,
// awq/modules/linear/gemv_fast.py: pack_intweight).
//
// Four output channels by 64 input channels are one chunk of 128 bytes: 32 for each channel, which
// hold two runs of 32 inputs. In a run of 16 bytes, 16-bit number r holds inputs r, r + 8, r + 16
// and r + 24, lowest bits first:
//
//     stored    0|8  16|24   1|9  17|25   …   7|15  23|31     (bytes as low nibble|high nibble)
//     unpacked  0|1   2|3    4|5   6|7    …  28|29  30|31
//
// So a run is a matrix of 8 × 4 nibbles, and unpacking transposes it.

inline constexpr size_t kGemvFastRows = 4;
inline constexpr size_t kGemvFastCols = 64;
inline constexpr size_t kGemvFastRowBytes = kGemvFastCols / 2;
inline constexpr size_t kGemvFastChunkBytes = kGemvFastRows * kGemvFastRowBytes;

// Unpacks one channel of `chunks` chunks: reads 32 bytes at `stored`, 128 bytes apart, and writes
// them, unpacked, without gaps.
using UnpackGemvFastFn = void(const uint8_t* stored, size_t chunks, uint8_t* unpacked);

}  // namespace prepack
