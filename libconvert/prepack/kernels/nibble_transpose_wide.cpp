// The scalar twin, which the others are compared with, and the choice between them.

#include "prepack/kernels/nibble_transpose_wide.h"

#include "prepack/base/isa.h"

namespace prepack {
namespace {

// Bytes of two rows at columns k and k + 1, or of two columns at rows r and r + 1.
void SwapNibbles(unsigned& a, unsigned& b) {
  const unsigned first = (a & 0x0FU) | (b & 0x0FU) << 4;
  b = a >> 4 | (b & 0xF0U);
  a = first;
}

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t mask,
                   uint8_t* columns, size_t column_stride) {
  for (size_t k = 0; k < cols; k += 2) {
    for (size_t r = 0; r < kWideTransposeRows; r += 2) {
      unsigned a = rows[r * row_bytes + k / 2];
      unsigned b = rows[(r + 1) * row_bytes + k / 2];
      SwapNibbles(a, b);
      columns[k * column_stride + r / 2] = static_cast<uint8_t>(a ^ mask);
      columns[(k + 1) * column_stride + r / 2] = static_cast<uint8_t>(b ^ mask);
    }
  }
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, uint8_t mask,
                   size_t row_bytes, uint8_t* rows) {
  for (size_t k = 0; k < cols; k += 2) {
    for (size_t r = 0; r < kWideTransposeRows; r += 2) {
      unsigned a = columns[k * column_stride + r / 2];
      unsigned b = columns[(k + 1) * column_stride + r / 2];
      SwapNibbles(a, b);
      rows[r * row_bytes + k / 2] = static_cast<uint8_t>(a ^ mask);
      rows[(r + 1) * row_bytes + k / 2] = static_cast<uint8_t>(b ^ mask);
    }
  }
}

}  // namespace

const WideNibbleTranspose kWideNibbleTransposeScalar = {RowsToColumns, ColumnsToRows};

const WideNibbleTranspose& WideNibbleTransposeFor(Isa isa) {
  static constexpr IsaVersion<const WideNibbleTranspose*> kVersions[] = {
      {Isa::kScalar, &kWideNibbleTransposeScalar},
      {Isa::kAvx2, &kWideNibbleTransposeAvx2},
      {Isa::kAvx512, &kWideNibbleTransposeAvx512},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
