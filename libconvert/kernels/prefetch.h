#ifndef PREPACK_KERNELS_PREFETCH_H_
#define PREPACK_KERNELS_PREFETCH_H_

// Short runs of memory in far places are a pattern that no CPU foresees: asked for ahead of the
// work, they arrive while other work is done.

#include <cstddef>

namespace prepack {

// Asks for `rows` runs of `bytes` bytes, `stride` apart. A hint: it may also point behind the end.
// Inlined always, so that files for different instruction sets do not share one copy.
[[gnu::always_inline]] inline void PrefetchRows(const std::byte* first, size_t stride, size_t rows,
                                                size_t bytes) {
  constexpr size_t kLineBytes = 64;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < bytes; i += kLineBytes) __builtin_prefetch(first + row * stride + i);
  }
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_PREFETCH_H_
