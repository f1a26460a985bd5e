#pragma once

// Sums of the codes of rows, which layouts for integer kernels store beside the codes.
//
// The sum of row r is added to sums[r], so that a row can be summed piece by piece. `cols` is at
// most 2^24 in one call, for which a sum fits into 32 bits whatever the codes are (−128 · 2^24 =
// −2^31). That what is in `sums` already leaves room for it is the caller's business.

#include <cstddef>
#include <cstdint>

namespace prepack {

inline constexpr size_t kMaxSumCols = size_t{1} << 24;

// Row r is the `cols` bytes at rows + r · row_stride.
using SumRowsFn = void(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols,
                       int32_t* sums);

}  // namespace prepack
