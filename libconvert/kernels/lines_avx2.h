// For the files that may use AVX2.

#ifndef PREPACK_KERNELS_LINES_AVX2_H_
#define PREPACK_KERNELS_LINES_AVX2_H_

// Rows that lie a multiple of a page apart, as those of many matrices do, share one set of the L1
// cache, where no more than eight or so of their cache lines fit. A kernel that takes a line of
// many rows piece by piece would fetch it anew for each piece. So lines go whole, at once, through
// a tile where they lie side by side.

#include <immintrin.h>

#include <cstddef>

namespace prepack {

inline constexpr size_t kLineBytes = 64;

// Copies a line of each of `rows` rows. Inlined always, so that no other file picks up a copy.
[[gnu::always_inline]] inline void CopyLines(const void* from, size_t from_stride, size_t rows,
                                             void* to, size_t to_stride) {
  for (size_t r = 0; r < rows; ++r) {
    const auto* line =
        reinterpret_cast<const __m256i*>(static_cast<const char*>(from) + r * from_stride);
    auto* copy = reinterpret_cast<__m256i*>(static_cast<char*>(to) + r * to_stride);
    const __m256i first = _mm256_loadu_si256(line);
    const __m256i second = _mm256_loadu_si256(line + 1);
    _mm256_storeu_si256(copy, first);
    _mm256_storeu_si256(copy + 1, second);
  }
}

}  // namespace prepack

#endif  // PREPACK_KERNELS_LINES_AVX2_H_
