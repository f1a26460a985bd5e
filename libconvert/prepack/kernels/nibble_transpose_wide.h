#ifndef PREPACK_KERNELS_NIBBLE_TRANSPOSE_WIDE_H_
#define PREPACK_KERNELS_NIBBLE_TRANSPOSE_WIDE_H_

// Transposes a block of 64 rows of nibbles, so that what is written of a column is half a cache
// line and not an eighth of one, as with blocks of 16 rows (nibble_transpose.h):
//
//     rows     row r, byte k/2, low half when k is even           (64 rows of `cols` nibbles)
//     columns  column k, byte r/2 (of 32), low half when r is even
//
// Every byte is XORed with `mask` on the way, which costs next to nothing here and a pass
// elsewhere. `cols` is even; rows are `row_bytes` apart, and columns `column_stride`. All versions
// write the same bytes.

#include <cstddef>
#include <cstdint>

#include "prepack/base/isa.h"

namespace prepack {

inline constexpr size_t kWideTransposeRows = 64;

struct WideNibbleTranspose {
  // Reads cols/2 bytes of each row, writes 32 bytes of each column.
  void (*rows_to_columns)(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                          uint8_t* columns, size_t column_stride);
  // The inverse.
  void (*columns_to_rows)(const uint8_t* columns, size_t column_stride, size_t cols, uint8_t mask,
                          size_t row_bytes, uint8_t* rows);
};

// The versions for one instruction set; `isa` must be supported here.
const WideNibbleTranspose& WideNibbleTransposeFor(Isa isa = ProcessIsa());

// One object per instruction set, each in a file of its own that is compiled for it.
extern const WideNibbleTranspose kWideNibbleTransposeScalar;
extern const WideNibbleTranspose kWideNibbleTransposeAvx2;
extern const WideNibbleTranspose kWideNibbleTransposeAvx512;

}  // namespace prepack

#endif  // PREPACK_KERNELS_NIBBLE_TRANSPOSE_WIDE_H_
