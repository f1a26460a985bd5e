#ifndef PREPACK_KERNELS_AWQ_GEMM_H_
#define PREPACK_KERNELS_AWQ_GEMM_H_

// The nibble order of AWQ's GEMM layout (mirrors AutoAWQ 0.2.9, awq/modules/linear/gemm.py:
// WQLinear_GEMM.from_linear).
//
// One 32-bit word holds eight adjacent output channels of one input channel:
//
//     bits      0–3  4–7  8–11 12–15 16–19 20–23 24–27 28–31
//     channel    0    2    4     6     1     3     5     7
//
// Channels 0 … 7 with codes 0 … 7 are the word 75316420, bytes 20 64 31 75.

#include <cstdint>

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

}  // namespace prepack

#endif  // PREPACK_KERNELS_AWQ_GEMM_H_
