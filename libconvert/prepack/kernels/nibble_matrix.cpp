// Blocks of 64 rows and those of 16 that are left go through nibble_transpose.h, and the rest is
// done nibble by nibble.

#include "prepack/kernels/nibble_matrix.h"

#include <algorithm>
#include <cstring>

#include "prepack/kernels/kernels.h"
#include "prepack/kernels/memory.h"
#include "prepack/kernels/nibble_transpose.h"

namespace prepack {
namespace {

// What goes through a tile on its way to or from columns that lie far apart: these often share a
// few sets of the cache, where they would not stay until they are complete. Long runs of few
// columns are faster than short ones of many.
constexpr size_t kTileColumnBytes = 256;
constexpr size_t kTileRows = 2 * kTileColumnBytes;
constexpr size_t kTileCols = 64;
constexpr size_t kTileBytes = kTileCols * kTileColumnBytes;

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

// A panel of rows and where it stands in columns.
struct Panel {
  size_t row_count;
  size_t cols;
  size_t row_bytes;
  size_t column_bytes;
  uint8_t mask;
};

// Rows [r0, r1) of columns [k0, k1).
struct Piece {
  size_t r0, r1, k0, k1;

  size_t RowByte(const Panel& panel) const { return r0 * panel.row_bytes + k0 / 2; }
  size_t ColumnByte(const Panel& panel) const { return k0 * panel.column_bytes + r0 / 2; }
};

void RestToColumns(const Panel& panel, const Piece& rest, const uint8_t* rows, uint8_t* columns) {
  for (size_t r = rest.r0; r < rest.r1; r += 2) {
    for (size_t k = rest.k0; k < rest.k1; ++k) {
      columns[k * panel.column_bytes + r / 2] =
          static_cast<uint8_t>(RowPair(rows, panel.row_bytes, r, k) ^ panel.mask);
    }
  }
}

void RestToRows(const Panel& panel, const Piece& rest, const uint8_t* columns, uint8_t* rows) {
  for (size_t r = rest.r0; r < rest.r1; r += 2) {
    for (size_t k = rest.k0; k < rest.k1; ++k) {
      const unsigned pair = columns[k * panel.column_bytes + r / 2];
      PutRowPair(rows, panel.row_bytes, r, k, pair ^ panel.mask);
    }
  }
}

// `bytes`, a multiple of 32, of each column.
void CopyColumns(const uint8_t* from, size_t from_stride, size_t cols, size_t bytes, uint8_t* to,
                 size_t to_stride) {
  for (size_t k = 0; k < cols; ++k) {
    for (size_t i = 0; i < bytes; i += 32) std::memcpy(to + i, from + i, 32);
    from += from_stride;
    to += to_stride;
  }
}

// A block of 64 rows of a piece, which begins at row r, and an even number of columns.
void WideToColumns(const Panel& panel, const Piece& piece, size_t r, const uint8_t* rows,
                   uint8_t* columns, size_t column_bytes) {
  Kernels().rows_to_columns(rows + r * panel.row_bytes + piece.k0 / 2, panel.row_bytes,
                            piece.k1 - piece.k0, panel.mask, columns + (r - piece.r0) / 2,
                            column_bytes);
}

void WideToRows(const Panel& panel, const Piece& piece, size_t r, const uint8_t* columns,
                size_t column_bytes, uint8_t* rows) {
  Kernels().columns_to_rows(columns + (r - piece.r0) / 2, column_bytes, piece.k1 - piece.k0,
                            panel.mask, panel.row_bytes, rows + r * panel.row_bytes + piece.k0 / 2);
}

// Asks for a part of the columns of `wanted`, while block r of `piece` is at work: all of them at
// once would wait for each other.
void PrefetchColumns(const Panel& panel, const Piece& wanted, const Piece& piece, size_t r,
                     const uint8_t* columns) {
  const size_t cols = wanted.k1 - wanted.k0;
  const size_t first = cols * (r - piece.r0) / (piece.r1 - piece.r0);
  const size_t end = cols * (r - piece.r0 + kWideTransposeRows) / (piece.r1 - piece.r0);
  PrefetchRows<kIntoL2>(columns + wanted.ColumnByte(panel) + first * panel.column_bytes,
                        panel.column_bytes, end - first, (wanted.r1 - wanted.r0) / 2);
}

// Asks for the rows behind block r, when their next cache line is due.
void PrefetchNextRows(const Panel& panel, const Piece& piece, size_t r, const uint8_t* rows) {
  if (piece.k0 / 2 % kLineBytes != 0) return;
  PrefetchRows<kIntoL2>(rows + (r + kWideTransposeRows) * panel.row_bytes + piece.k0 / 2,
                        panel.row_bytes, kWideTransposeRows, kLineBytes);
}

size_t WholeRows(size_t rows, size_t multiple) {
  return rows / multiple * multiple;
}

// The piece of whole blocks of 64 rows that comes after `piece`; behind the last, one without
// columns.
Piece Following(const Panel& panel, const Piece& piece) {
  const size_t end = WholeRows(panel.row_count, kWideTransposeRows);
  const bool same_columns = piece.r1 < end;
  const size_t r0 = same_columns ? piece.r1 : 0;
  const size_t k0 = same_columns ? piece.k0 : piece.k1;
  return {r0, std::min(r0 + kTileRows, end), k0, std::min(k0 + kTileCols, panel.cols)};
}

// Through a tile, to and from columns that lie far apart.
void FarToColumns(const Panel& panel, const Piece& piece, const uint8_t* rows, uint8_t* tile,
                  uint8_t* columns) {
  for (size_t r = piece.r0; r < piece.r1; r += kWideTransposeRows) {
    PrefetchColumns(panel, piece, piece, r, columns);
    PrefetchNextRows(panel, piece, r, rows);
    WideToColumns(panel, piece, r, rows, tile, kTileColumnBytes);
  }
  CopyColumns(tile, kTileColumnBytes, piece.k1 - piece.k0, (piece.r1 - piece.r0) / 2,
              columns + piece.ColumnByte(panel), panel.column_bytes);
}

void FarToRows(const Panel& panel, const Piece& piece, const uint8_t* columns, uint8_t* tile,
               uint8_t* rows) {
  CopyColumns(columns + piece.ColumnByte(panel), panel.column_bytes, piece.k1 - piece.k0,
              (piece.r1 - piece.r0) / 2, tile, kTileColumnBytes);
  const Piece following = Following(panel, piece);
  for (size_t r = piece.r0; r < piece.r1; r += kWideTransposeRows) {
    PrefetchColumns(panel, following, piece, r, columns);
    WideToRows(panel, piece, r, tile, kTileColumnBytes, rows);
  }
}

// Straight to and from columns side by side.
void NearToColumns(const Panel& panel, const Piece& piece, const uint8_t* rows, uint8_t* columns) {
  for (size_t r = piece.r0; r < piece.r1; r += kWideTransposeRows) {
    WideToColumns(panel, piece, r, rows, columns + piece.ColumnByte(panel), panel.column_bytes);
  }
}

void NearToRows(const Panel& panel, const Piece& piece, const uint8_t* columns, uint8_t* rows) {
  for (size_t r = piece.r0; r < piece.r1; r += kWideTransposeRows) {
    WideToRows(panel, piece, r, columns + piece.ColumnByte(panel), panel.column_bytes, rows);
  }
}

// The word of a column in a block of 16 rows.
void XorWord(const uint8_t* from, uint8_t mask, uint8_t* to) {
  uint64_t word = 0;
  static_assert(sizeof word == kTransposeWordBytes);
  std::memcpy(&word, from, sizeof word);
  word ^= mask * 0x0101010101010101U;
  std::memcpy(to, &word, sizeof word);
}

// A block of 16 rows and an even number of columns; its words lie back to back on the way.
void BlockToColumns(const Panel& panel, const Piece& block, const uint8_t* rows, uint8_t* columns) {
  uint8_t words[kTileCols * kTransposeWordBytes];
  const size_t cols = block.k1 - block.k0;
  Kernels().rows_to_words(rows + block.RowByte(panel), panel.row_bytes, cols, words,
                          kTransposeWordBytes);
  for (size_t k = 0; k < cols; ++k) {
    XorWord(words + k * kTransposeWordBytes, panel.mask,
            columns + block.ColumnByte(panel) + k * panel.column_bytes);
  }
}

void BlockToRows(const Panel& panel, const Piece& block, const uint8_t* columns, uint8_t* rows) {
  uint8_t words[kTileCols * kTransposeWordBytes];
  const size_t cols = block.k1 - block.k0;
  for (size_t k = 0; k < cols; ++k) {
    XorWord(columns + block.ColumnByte(panel) + k * panel.column_bytes, panel.mask,
            words + k * kTransposeWordBytes);
  }
  Kernels().words_to_rows(words, kTransposeWordBytes, cols, panel.row_bytes,
                          rows + block.RowByte(panel));
}

// Calls visit(k0, k1) for up to `step` columns at a time, and leaves an odd last one. What is less
// than a tile's columns at the end begins earlier, because those of all of a tile are the fastest.
template <typename Visit>
void ForColumns(const Panel& panel, size_t step, Visit visit) {
  const size_t even_cols = panel.cols / 2 * 2;
  for (size_t next = 0; next < even_cols; next += step) {
    const size_t k1 = std::min(next + step, even_cols);
    visit(std::min(next, k1 - std::min(kTileCols, k1)), k1);
  }
}

// Calls wide(piece) for pieces of whole blocks of 64 rows and an even number of columns,
// block(piece) for those of 16 rows that are left, and rest(piece) for the remainder. Pieces fill a
// tile, or, of short columns, as much of the cache as a tile.
template <typename Wide, typename Block, typename Rest>
void ForPieces(const Panel& panel, Wide wide, Block block, Rest rest) {
  const size_t even_cols = panel.cols / 2 * 2;
  const size_t wide_rows = WholeRows(panel.row_count, kWideTransposeRows);
  const size_t whole_rows = WholeRows(panel.row_count, kTransposeRows);
  const size_t tiles = kTileColumnBytes / std::max<size_t>(panel.column_bytes, 1);
  const size_t wide_cols = kTileCols * std::max<size_t>(tiles, 1);
  ForColumns(panel, wide_cols, [&](size_t k0, size_t k1) {
    for (size_t r = 0; r < wide_rows; r += kTileRows) {
      wide(Piece{r, std::min(r + kTileRows, wide_rows), k0, k1});
    }
  });
  ForColumns(panel, kTileCols, [&](size_t k0, size_t k1) {
    for (size_t r = wide_rows; r < whole_rows; r += kTransposeRows) {
      block(Piece{r, r + kTransposeRows, k0, k1});
    }
  });
  rest(Piece{whole_rows, panel.row_count, 0, even_cols});
  rest(Piece{0, panel.row_count, even_cols, panel.cols});
}

}  // namespace

void NibbleRowsToColumns(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t cols,
                         uint8_t mask, uint8_t* columns, size_t column_bytes) {
  const Panel panel = {row_count, cols, row_bytes, column_bytes, mask};
  uint8_t tile[kTileBytes];
  ForPieces(
      panel,
      [&](const Piece& piece) {
        if (column_bytes <= kTileColumnBytes) {
          NearToColumns(panel, piece, rows, columns);
        } else {
          FarToColumns(panel, piece, rows, tile, columns);
        }
      },
      [&](const Piece& block) { BlockToColumns(panel, block, rows, columns); },
      [&](const Piece& rest) { RestToColumns(panel, rest, rows, columns); });
}

void NibbleColumnsToRows(const uint8_t* columns, size_t column_bytes, size_t row_count, size_t cols,
                         uint8_t mask, uint8_t* rows, size_t row_bytes) {
  const Panel panel = {row_count, cols, row_bytes, column_bytes, mask};
  uint8_t tile[kTileBytes];
  ForPieces(
      panel,
      [&](const Piece& piece) {
        if (column_bytes <= kTileColumnBytes) {
          NearToRows(panel, piece, columns, rows);
        } else {
          FarToRows(panel, piece, columns, tile, rows);
        }
      },
      [&](const Piece& block) { BlockToRows(panel, block, columns, rows); },
      [&](const Piece& rest) { RestToRows(panel, rest, columns, rows); });
}

}  // namespace prepack
