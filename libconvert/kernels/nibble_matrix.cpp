// Blocks of 16 rows go through nibble_transpose.h, piece by piece of columns, so that cache lines
// of columns get whole while they are at hand. What is left over is done nibble by nibble.

#include "kernels/nibble_matrix.h"

#include <algorithm>

#include "kernels/nibble_transpose.h"

namespace prepack {
namespace {

constexpr size_t kPieceCols = 64;

// A pair of rows at one column.
unsigned RowPair(const uint8_t* rows, size_t row_bytes, size_t r, size_t k) {
  const unsigned shift = k % 2 * 4;
  const unsigned upper = rows[r * row_bytes + k / 2] >> shift & 0x0FU;
  const unsigned lower = rows[(r + 1) * row_bytes + k / 2] >> shift & 0x0FU;
  return upper | lower << 4;
}

// Zeroes the odd nibble of a byte with the even one, which comes first.
void PutNibble(uint8_t& byte, size_t k, unsigned nibble) {
  byte = static_cast<uint8_t>(k % 2 == 0 ? nibble : byte | nibble << 4);
}

void PutRowPair(uint8_t* rows, size_t row_bytes, size_t r, size_t k, unsigned pair) {
  PutNibble(rows[r * row_bytes + k / 2], k, pair & 0x0FU);
  PutNibble(rows[(r + 1) * row_bytes + k / 2], k, pair >> 4);
}

size_t WholeRows(size_t rows) {
  return rows / kTransposeRows * kTransposeRows;
}

// Rows [r0, r1) of columns [k0, k1).
struct Rest {
  size_t r0, r1, k0, k1;
};

void RestToColumns(const Rest& rest, const uint8_t* rows, size_t row_bytes, uint8_t* columns,
                   size_t column_bytes) {
  for (size_t r = rest.r0; r < rest.r1; r += 2) {
    for (size_t k = rest.k0; k < rest.k1; ++k) {
      columns[k * column_bytes + r / 2] = static_cast<uint8_t>(RowPair(rows, row_bytes, r, k));
    }
  }
}

void RestToRows(const Rest& rest, const uint8_t* columns, size_t column_bytes, uint8_t* rows,
                size_t row_bytes) {
  for (size_t r = rest.r0; r < rest.r1; r += 2) {
    for (size_t k = rest.k0; k < rest.k1; ++k) {
      PutRowPair(rows, row_bytes, r, k, columns[k * column_bytes + r / 2]);
    }
  }
}

}  // namespace

void NibbleRowsToColumns(Isa isa, const uint8_t* rows, size_t row_bytes, size_t row_count,
                         size_t cols, uint8_t* columns, size_t column_bytes) {
  const size_t even_cols = cols / 2 * 2;
  const size_t whole_rows = WholeRows(row_count);
  for (size_t k = 0; k < even_cols; k += kPieceCols) {
    for (size_t r = 0; r < whole_rows; r += kTransposeRows) {
      NibbleTransposeFor(isa).rows_to_columns(rows + r * row_bytes + k / 2, row_bytes,
                                              std::min(kPieceCols, even_cols - k),
                                              columns + k * column_bytes + r / 2, column_bytes);
    }
  }
  RestToColumns({whole_rows, row_count, 0, even_cols}, rows, row_bytes, columns, column_bytes);
  RestToColumns({0, row_count, even_cols, cols}, rows, row_bytes, columns, column_bytes);
}

void NibbleColumnsToRows(Isa isa, const uint8_t* columns, size_t column_bytes, size_t row_count,
                         size_t cols, uint8_t* rows, size_t row_bytes) {
  const size_t even_cols = cols / 2 * 2;
  const size_t whole_rows = WholeRows(row_count);
  for (size_t k = 0; k < even_cols; k += kPieceCols) {
    for (size_t r = 0; r < whole_rows; r += kTransposeRows) {
      NibbleTransposeFor(isa).columns_to_rows(columns + k * column_bytes + r / 2, column_bytes,
                                              std::min(kPieceCols, even_cols - k), row_bytes,
                                              rows + r * row_bytes + k / 2);
    }
  }
  RestToRows({whole_rows, row_count, 0, even_cols}, columns, column_bytes, rows, row_bytes);
  RestToRows({0, row_count, even_cols, cols}, columns, column_bytes, rows, row_bytes);
}

}  // namespace prepack
