#pragma once

// What kernels do to memory besides their work: copies, runs and hints. Inlined always, so that
// files for different instruction sets do not share one copy.

#include <cstddef>
#include <span>

namespace prepack {

inline constexpr size_t kLineBytes = 64;

// Rows that lie a multiple of a page apart, as those of many matrices do, share one set of the L1
// cache, where no more than eight or so of their cache lines fit. A kernel that takes a piece of
// many rows at a time would fetch each line anew for each piece, and nothing would foresee which
// line comes next. So long runs of the rows go through a tile where they lie side by side: run by
// run, which the hardware prefetcher follows. With runs of one line, kernels are half as fast.
//
// Copies a run of kBytes of each of `rows` rows, kStep bytes at a time: those of a register.
template <size_t kBytes, size_t kStep = 32>
[[gnu::always_inline]] inline void CopyRuns(const void* from, size_t from_stride, size_t rows,
                                            void* to, size_t to_stride) {
  using Vector [[gnu::vector_size(kStep), gnu::aligned(1), gnu::may_alias]] = char;
  for (size_t r = 0; r < rows; ++r) {
    const char* run = static_cast<const char*>(from) + r * from_stride;
    char* copy = static_cast<char*>(to) + r * to_stride;
    for (size_t i = 0; i < kBytes; i += kStep) {
      *reinterpret_cast<Vector*>(copy + i) = *reinterpret_cast<const Vector*>(run + i);
    }
  }
}

// Calls work(first) for pieces of `piece` of `count`, which is no less. A last piece that would
// stick out is moved back over its neighbour, and some of it is done twice.
template <typename Work>
[[gnu::always_inline]] inline void ForPieces(size_t count, size_t piece, const Work& work) {
  for (size_t next = 0; next < count; next += piece) {
    work(next < count - piece ? next : count - piece);
  }
}

// Short runs of memory in far places are a pattern that no CPU foresees: asked for ahead of the
// work, they arrive while other work is done.
//
// The cache that they are to arrive in: L2 where there are too many of them, or too many that share
// a set, for L1.
inline constexpr int kIntoL1 = 3;
inline constexpr int kIntoL2 = 2;

// Asks for `rows` runs of `bytes` bytes, `stride` apart. A hint: it may also point behind the end.
template <int kCache = kIntoL1>
[[gnu::always_inline]] inline void PrefetchRows(const void* first, size_t stride, size_t rows,
                                                size_t bytes) {
  const char* row = static_cast<const char*>(first);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(row + i, 0, kCache);
    row += stride;
  }
}

// to[i] = from[i] XOR mask. With mask 0x88 it turns unsigned 4-bit codes of zero point 8 into two's
// complement, and back. The spans have the same size. Bound by memory on every instruction set, if
// a step of the loop is a cache line: with smaller ones it is half as fast where the loop happens
// to lie badly in the program.
inline void XorCopy(std::span<const std::byte> from, std::byte mask, std::span<std::byte> to) {
  using Vector [[gnu::vector_size(16), gnu::aligned(1), gnu::may_alias]] = unsigned char;
  const auto bits = std::to_integer<unsigned char>(mask);
  const size_t whole = to.size() / kLineBytes * kLineBytes;
#pragma GCC unroll 4
  for (size_t i = 0; i < whole; i += sizeof(Vector)) {
    *reinterpret_cast<Vector*>(&to[i]) = *reinterpret_cast<const Vector*>(&from[i]) ^ bits;
  }
  for (size_t i = whole; i < to.size(); ++i) to[i] = from[i] ^ mask;
}

}  // namespace prepack
