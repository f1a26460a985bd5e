#ifndef PREPACK_CANONICAL_ROW_STRIPES_H_
#define PREPACK_CANONICAL_ROW_STRIPES_H_

// Parallel work over weights that does not depend on the number of threads: every matrix is cut
// into stripes of consecutive rows by its shape alone. What is summed per stripe, and merged in the
// order of the stripes, has the same bits on one thread and on a hundred.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace prepack {

// Large enough that a stripe's result (a few KB) is small beside it, small enough that the threads
// finish together: a 70B model has 17,000 stripes.
inline constexpr uint64_t kStripeWeights = uint64_t{1} << 22;

// Weights that are read at a time: codes and widened floats of one thread stay in its caches.
inline constexpr uint64_t kStripePanelWeights = uint64_t{1} << 18;

struct RowStripe {
  size_t matrix = 0;  // index of the caller
  uint64_t n0 = 0;
  uint64_t rows = 0;
};

// Appends the stripes of matrix [n, k]. Rows come in eights where there are that many, because
// zero points can lie eight channels to a word.
inline void AppendStripes(size_t matrix, uint64_t n, uint64_t k, std::vector<RowStripe>& stripes) {
  const uint64_t rows = std::max<uint64_t>(8, kStripeWeights / std::max<uint64_t>(k, 1) / 8 * 8);
  for (uint64_t n0 = 0; n0 < n; n0 += rows) {
    stripes.push_back({.matrix = matrix, .n0 = n0, .rows = std::min(rows, n - n0)});
  }
}

// Rows come in eights up to so many weights, and one by one beyond: what is read at a time must not
// grow with K by more than it has to.
inline constexpr uint64_t kMostPanelWeights = uint64_t{1} << 20;

// Rows of [., k] to read at a time.
inline uint64_t StripePanelRows(uint64_t k) {
  const uint64_t inputs = std::max<uint64_t>(k, 1);
  const uint64_t eights = std::max<uint64_t>(8, kStripePanelWeights / inputs / 8 * 8);
  return inputs <= kMostPanelWeights / 8 ? eights
                                         : std::max<uint64_t>(1, kMostPanelWeights / inputs);
}

}  // namespace prepack

#endif  // PREPACK_CANONICAL_ROW_STRIPES_H_
