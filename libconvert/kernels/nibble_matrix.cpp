// Blocks of 16 rows go through nibble_transpose.h, piece by piece of columns, so that cache lines
// of columns get whole while they are at hand. What is left over is done nibble by nibble.

#include "kernels/nibble_matrix.h"

#include <algorithm>
#include <cstring>

#include "kernels/nibble_transpose.h"

namespace prepack {
namespace {

constexpr size_t kPieceCols = 128;  // a cache line of each row
// A cache line of each column of a piece, on its way to or from columns that lie far apart: these
// often share a few sets of the cache, where they would not stay until they are complete.
constexpr size_t kTileColumnBytes = 64;
constexpr size_t kTileRows = 2 * kTileColumnBytes;
constexpr size_t kTileBytes = kPieceCols * kTileColumnBytes;

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

// `bytes`, a multiple of eight and mostly of 32, of each column.
void CopyColumns(const uint8_t* from, size_t from_stride, size_t cols, size_t bytes, uint8_t* to,
                 size_t to_stride) {
  for (size_t k = 0; k < cols; ++k) {
    size_t i = 0;
    for (; i + 32 <= bytes; i += 32) std::memcpy(to + i, from + i, 32);
    for (; i < bytes; i += 8) std::memcpy(to + i, from + i, 8);
    from += from_stride;
    to += to_stride;
  }
}

// Rows in whole blocks, and an even number of columns of them, no more than a piece.
void PieceToColumns(const NibbleTranspose& transpose, const uint8_t* rows, size_t row_bytes,
                    size_t row_count, size_t cols, uint8_t* columns, size_t column_bytes) {
  for (size_t r = 0; r < row_count; r += kTransposeRows) {
    transpose.rows_to_columns(rows + r * row_bytes, row_bytes, cols, columns + r / 2, column_bytes);
  }
}

void PieceToRows(const NibbleTranspose& transpose, const uint8_t* columns, size_t column_bytes,
                 size_t row_count, size_t cols, uint8_t* rows, size_t row_bytes) {
  for (size_t r = 0; r < row_count; r += kTransposeRows) {
    transpose.columns_to_rows(columns + r / 2, column_bytes, cols, row_bytes, rows + r * row_bytes);
  }
}

// Calls visit(first row, rows, first column, columns) for the pieces of whole blocks of rows and an
// even number of columns, and rest(what is left over) for the remainder.
template <typename Visit, typename VisitRest>
void ForPieces(size_t row_count, size_t cols, Visit visit, VisitRest rest) {
  const size_t even_cols = cols / 2 * 2;
  const size_t whole_rows = WholeRows(row_count);
  for (size_t k = 0; k < even_cols; k += kPieceCols) {
    for (size_t r = 0; r < whole_rows; r += kTileRows) {
      visit(r, std::min(kTileRows, whole_rows - r), k, std::min(kPieceCols, even_cols - k));
    }
  }
  rest(Rest{whole_rows, row_count, 0, even_cols});
  rest(Rest{0, row_count, even_cols, cols});
}

}  // namespace

void NibbleRowsToColumns(Isa isa, const uint8_t* rows, size_t row_bytes, size_t row_count,
                         size_t cols, uint8_t* columns, size_t column_bytes) {
  const NibbleTranspose& transpose = NibbleTransposeFor(isa);
  uint8_t tile[kTileBytes];
  ForPieces(
      row_count, cols,
      [&](size_t r, size_t count, size_t k, size_t piece) {
        const uint8_t* from = rows + r * row_bytes + k / 2;
        uint8_t* to = columns + k * column_bytes + r / 2;
        if (column_bytes <= kTileColumnBytes) {
          return PieceToColumns(transpose, from, row_bytes, count, piece, to, column_bytes);
        }
        PieceToColumns(transpose, from, row_bytes, count, piece, tile, kTileColumnBytes);
        CopyColumns(tile, kTileColumnBytes, piece, count / 2, to, column_bytes);
      },
      [&](const Rest& rest) { RestToColumns(rest, rows, row_bytes, columns, column_bytes); });
}

void NibbleColumnsToRows(Isa isa, const uint8_t* columns, size_t column_bytes, size_t row_count,
                         size_t cols, uint8_t* rows, size_t row_bytes) {
  const NibbleTranspose& transpose = NibbleTransposeFor(isa);
  uint8_t tile[kTileBytes];
  ForPieces(
      row_count, cols,
      [&](size_t r, size_t count, size_t k, size_t piece) {
        const uint8_t* from = columns + k * column_bytes + r / 2;
        uint8_t* to = rows + r * row_bytes + k / 2;
        if (column_bytes <= kTileColumnBytes) {
          return PieceToRows(transpose, from, column_bytes, count, piece, to, row_bytes);
        }
        CopyColumns(from, column_bytes, piece, count / 2, tile, kTileColumnBytes);
        PieceToRows(transpose, tile, kTileColumnBytes, count, piece, to, row_bytes);
      },
      [&](const Rest& rest) { RestToRows(rest, columns, column_bytes, rows, row_bytes); });
}

}  // namespace prepack
