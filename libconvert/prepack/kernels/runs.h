#ifndef PREPACK_KERNELS_RUNS_H_
#define PREPACK_KERNELS_RUNS_H_

// Rows that lie a multiple of a page apart, as those of many matrices do, share one set of the L1
// cache, where no more than eight or so of their cache lines fit. A kernel that takes a piece of
// many rows at a time would fetch each line anew for each piece, and nothing would foresee which
// line comes next. So long runs of the rows go through a tile where they lie side by side: run by
// run, which the hardware prefetcher follows. With runs of one line, kernels are half as fast.

#include <cstddef>

namespace prepack {

inline constexpr size_t kLineBytes = 64;

// Copies a run of kBytes of each of `rows` rows. Inlined always, so that no other file picks up a
// copy.
template <size_t kBytes>
[[gnu::always_inline]] inline void CopyRuns(const void* from, size_t from_stride, size_t rows,
                                            void* to, size_t to_stride) {
#ifdef __AVX512F__  // the registers that the file is compiled for
  using Vector [[gnu::vector_size(64), gnu::aligned(1), gnu::may_alias]] = char;
#else
  using Vector [[gnu::vector_size(32), gnu::aligned(1), gnu::may_alias]] = char;
#endif
  for (size_t r = 0; r < rows; ++r) {
    const char* run = static_cast<const char*>(from) + r * from_stride;
    char* copy = static_cast<char*>(to) + r * to_stride;
    for (size_t i = 0; i < kBytes; i += sizeof(Vector)) {
      *reinterpret_cast<Vector*>(copy + i) = *reinterpret_cast<const Vector*>(run + i);
    }
  }
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_RUNS_H_
