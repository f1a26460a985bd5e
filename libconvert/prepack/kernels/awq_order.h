#ifndef PREPACK_KERNELS_AWQ_ORDER_H_
#define PREPACK_KERNELS_AWQ_ORDER_H_

// Words of AWQ's GEMM layout (awq_gemm.h) with their channels in order, channel 0 in the lowest
// nibble:
//
//     in    c7 c5 c3 c1  c6 c4 c2 c0      (high nibble first)
//     out   c7 c6 c5 c4  c3 c2 c1 c0

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "prepack/kernels/awq_gemm.h"

namespace prepack {

constexpr uint32_t AwqWordInOrder(uint32_t word) {
  // c7 c5 c6 c4  c3 c1 c2 c0: the bytes in the middle change places, and then nibbles.
  const uint32_t bytes = (word ^ word >> 8) & 0x0000FF00;
  word ^= bytes ^ bytes << 8;
  const uint32_t nibbles = (word ^ word >> 4) & 0x00F000F0;
  return word ^ nibbles ^ nibbles << 4;
}
static_assert(AwqWordInOrder(0x75316420) == 0x76543210);

// `count` words, of any alignment. A plain loop: the compiler vectorises it, and it is bound by
// memory on every instruction set.
inline void OrderAwqWords(const std::byte* words, size_t count, std::byte* out) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, words + i * sizeof word, sizeof word);
    word = AwqWordInOrder(word);
    std::memcpy(out + i * sizeof word, &word, sizeof word);
  }
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_AWQ_ORDER_H_
