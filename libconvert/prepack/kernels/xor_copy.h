#ifndef PREPACK_KERNELS_XOR_COPY_H_
#define PREPACK_KERNELS_XOR_COPY_H_

#include <cstddef>
#include <span>

namespace prepack {

// to[i] = from[i] XOR mask. With mask 0x88 it turns unsigned 4-bit codes of zero point 8 into two's
// complement, and back. The spans have the same size. Bound by memory on every instruction set, if
// a step of the loop is a cache line: with smaller ones it is half as fast where the loop happens
// to lie badly in the program.
inline void XorCopy(std::span<const std::byte> from, std::byte mask, std::span<std::byte> to) {
  using Vector [[gnu::vector_size(16), gnu::aligned(1), gnu::may_alias]] = unsigned char;
  constexpr size_t kLineBytes = 64;
  const auto bits = std::to_integer<unsigned char>(mask);
  const size_t whole = to.size() / kLineBytes * kLineBytes;
#pragma GCC unroll 4
  for (size_t i = 0; i < whole; i += sizeof(Vector)) {
    *reinterpret_cast<Vector*>(&to[i]) = *reinterpret_cast<const Vector*>(&from[i]) ^ bits;
  }
  for (size_t i = whole; i < to.size(); ++i) to[i] = from[i] ^ mask;
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_XOR_COPY_H_
