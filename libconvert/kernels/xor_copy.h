#ifndef PREPACK_KERNELS_XOR_COPY_H_
#define PREPACK_KERNELS_XOR_COPY_H_

#include <cstddef>
#include <span>

namespace prepack {

// to[i] = from[i] XOR mask. With mask 0x88 it turns unsigned 4-bit codes of zero point 8 into two's
// complement, and back. The spans have the same size. A plain loop: the compiler vectorises it, and
// it is bound by memory on every instruction set.
inline void XorCopy(std::span<const std::byte> from, std::byte mask, std::span<std::byte> to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = from[i] ^ mask;
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_XOR_COPY_H_
