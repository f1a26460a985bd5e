// The scalar twin, which the others are compared with, and the choice between them.

#include "prepack/kernels/nibble_transpose.h"

#include "prepack/base/isa.h"

namespace prepack {
namespace {

void RowsToColumns(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* columns,
                   size_t column_stride) {
  for (size_t k = 0; k < cols; k += 2) {
    for (size_t r = 0; r < kTransposeRows; r += 2) {
      const unsigned upper = rows[r * row_bytes + k / 2];
      const unsigned lower = rows[(r + 1) * row_bytes + k / 2];
      columns[k * column_stride + r / 2] =
          static_cast<uint8_t>((upper & 0x0FU) | (lower & 0x0FU) << 4);
      columns[(k + 1) * column_stride + r / 2] = static_cast<uint8_t>(upper >> 4 | (lower & 0xF0U));
    }
  }
}

void ColumnsToRows(const uint8_t* columns, size_t column_stride, size_t cols, size_t row_bytes,
                   uint8_t* rows) {
  for (size_t k = 0; k < cols; k += 2) {
    for (size_t r = 0; r < kTransposeRows; r += 2) {
      const unsigned even = columns[k * column_stride + r / 2];
      const unsigned odd = columns[(k + 1) * column_stride + r / 2];
      rows[r * row_bytes + k / 2] = static_cast<uint8_t>((even & 0x0FU) | (odd & 0x0FU) << 4);
      rows[(r + 1) * row_bytes + k / 2] = static_cast<uint8_t>(even >> 4 | (odd & 0xF0U));
    }
  }
}

}  // namespace

const NibbleTranspose kNibbleTransposeScalar = {RowsToColumns, ColumnsToRows};

const NibbleTranspose& NibbleTransposeFor(Isa isa) {
  static constexpr IsaVersion<const NibbleTranspose*> kVersions[] = {
      {Isa::kScalar, &kNibbleTransposeScalar},
      {Isa::kAvx2, &kNibbleTransposeAvx2},
      {Isa::kAvx512, &kNibbleTransposeAvx512},
  };
  return *BestVersion(kVersions, isa);
}

}  // namespace prepack
