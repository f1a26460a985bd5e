#ifndef PREPACK_KERNELS_PREFETCH_H_
#define PREPACK_KERNELS_PREFETCH_H_

// Short runs of memory in far places are a pattern that no CPU foresees: asked for ahead of the
// work, they arrive while other work is done.

#include <cstddef>

namespace prepack {

// The cache that they are to arrive in: L2 where there are too many of them, or too many that share
// a set, for L1.
inline constexpr int kIntoL1 = 3;
inline constexpr int kIntoL2 = 2;

// Asks for `rows` runs of `bytes` bytes, `stride` apart. A hint: it may also point behind the end.
// Inlined always, so that files for different instruction sets do not share one copy.
template <int kCache = kIntoL1>
[[gnu::always_inline]] inline void PrefetchRows(const void* first, size_t stride, size_t rows,
                                                size_t bytes) {
  constexpr size_t kLineBytes = 64;
  const char* row = static_cast<const char*>(first);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(row + i, 0, kCache);
    row += stride;
  }
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_PREFETCH_H_
