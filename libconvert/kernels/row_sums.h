#ifndef PREPACK_KERNELS_ROW_SUMS_H_
#define PREPACK_KERNELS_ROW_SUMS_H_

// Sums of the codes of rows, which layouts for integer kernels store beside the codes.
//
// The sum of row r is added to sums[r], so that a row can be summed piece by piece. `cols` is at
// most 2^24 in one call, for which a sum fits into 32 bits whatever the codes are (−128 · 2^24 =
// −2^31). That what is in `sums` already leaves room for it is the caller's business.

#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace prepack {

inline constexpr size_t kMaxSumCols = size_t{1} << 24;

struct RowSums {
  // Row r is the `cols` bytes at rows + r · row_stride.
  void (*bytes)(const int8_t* rows, size_t row_stride, size_t row_count, size_t cols,
                int32_t* sums);
  // Row r is the cols/2 bytes at rows + r · row_bytes, of two unsigned codes each; `cols` is even.
  void (*nibbles)(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t cols,
                  int32_t* sums);
};

// The versions for one instruction set; `isa` must be supported here.
const RowSums& RowSumsFor(Isa isa);

// One object per instruction set, each in a file of its own that is compiled for it.
extern const RowSums kRowSumsScalar;
extern const RowSums kRowSumsAvx2;
extern const RowSums kRowSumsAvx512;

}  // namespace prepack

#endif  // PREPACK_KERNELS_ROW_SUMS_H_
