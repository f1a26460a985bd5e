// Blocks and whole panels of nibbles, transposed as the closed form says.

#include "prepack/kernels/nibble_transpose.h"

#include "catch.h"
#include "kernels/edge_buffer.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_matrix.h"

namespace prepack::testing {
namespace {

struct Panel {
  size_t rows;
  size_t cols;
  size_t row_bytes;
  size_t column_bytes;
  uint8_t mask = 0;

  size_t RowsSize() const { return StridedBytes(rows, (cols + 1) / 2, row_bytes); }
  size_t ColumnsSize() const { return rows == 0 ? 0 : StridedBytes(cols, rows / 2, column_bytes); }
};

std::vector<uint8_t> ExpectedColumns(const Panel& panel, const uint8_t* rows) {
  std::vector<uint8_t> columns = Poisoned(panel.ColumnsSize());
  for (size_t r = 0; r < panel.rows; ++r) {
    for (size_t k = 0; k < panel.cols; ++k) {
      const unsigned code = NibbleAt(rows + r * panel.row_bytes, k) ^ (panel.mask & 0x0FU);
      PutNibbleAt(&columns[k * panel.column_bytes], r, code);
    }
  }
  return columns;
}

// What comes back: the nibbles of `rows`, zero behind an odd number of them, poison between rows.
std::vector<uint8_t> ExpectedRows(const Panel& panel, const uint8_t* rows) {
  std::vector<uint8_t> back = Poisoned(panel.RowsSize());
  for (size_t r = 0; r < panel.rows; ++r) {
    uint8_t* row = back.data() + r * panel.row_bytes;
    if (panel.cols % 2 != 0) row[panel.cols / 2] = 0;
    for (size_t k = 0; k < panel.cols; ++k) {
      PutNibbleAt(row, k, NibbleAt(rows + r * panel.row_bytes, k));
    }
  }
  return back;
}

void CheckBlock(Isa isa, const Panel& panel, SplitMix64& random) {
  CAPTURE(IsaName(isa), panel.cols, panel.row_bytes, panel.column_bytes);
  const EdgeBuffer rows(panel.RowsSize(), random);
  const EdgeBuffer columns(panel.ColumnsSize());
  KernelsFor(isa).rows_to_words(rows.data(), panel.row_bytes, panel.cols, columns.data(),
                                panel.column_bytes);
  REQUIRE(columns.Holds(ExpectedColumns(panel, rows.data())));
  const EdgeBuffer back(panel.RowsSize());
  KernelsFor(isa).words_to_rows(columns.data(), panel.column_bytes, panel.cols, panel.row_bytes,
                                back.data());
  REQUIRE(back.Holds(ExpectedRows(panel, rows.data())));
}

void CheckWideBlock(Isa isa, const Panel& panel, SplitMix64& random) {
  CAPTURE(IsaName(isa), panel.cols, panel.row_bytes, panel.column_bytes, int{panel.mask});
  const EdgeBuffer rows(panel.RowsSize(), random);
  const EdgeBuffer columns(panel.ColumnsSize());
  const KernelTable& kernels = KernelsFor(isa);
  kernels.rows_to_columns(rows.data(), panel.row_bytes, panel.cols, panel.mask, columns.data(),
                          panel.column_bytes);
  REQUIRE(columns.Holds(ExpectedColumns(panel, rows.data())));
  const EdgeBuffer back(panel.RowsSize());
  kernels.columns_to_rows(columns.data(), panel.column_bytes, panel.cols, panel.mask,
                          panel.row_bytes, back.data());
  REQUIRE(back.Holds(ExpectedRows(panel, rows.data())));
}

void CheckPanel(Isa isa, const Panel& panel, SplitMix64& random) {
  const ScopedIsa scope(isa);
  CAPTURE(IsaName(isa), panel.rows, panel.cols, panel.row_bytes, panel.column_bytes,
          int{panel.mask});
  const EdgeBuffer rows(panel.RowsSize(), random);
  const EdgeBuffer columns(panel.ColumnsSize());
  NibbleRowsToColumns(rows.data(), panel.row_bytes, panel.rows, panel.cols, panel.mask,
                      columns.data(), panel.column_bytes);
  REQUIRE(columns.Holds(ExpectedColumns(panel, rows.data())));
  const EdgeBuffer back(panel.RowsSize());
  NibbleColumnsToRows(columns.data(), panel.column_bytes, panel.rows, panel.cols, panel.mask,
                      back.data(), panel.row_bytes);
  REQUIRE(back.Holds(ExpectedRows(panel, rows.data())));
}

TEST_CASE("blocks of 16 rows of nibbles become columns of any stride, and go back") {
  SplitMix64 random(35);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t cols : Sizes{0, 2, 30, 62, 64, 66, 126, 128, 194, 1002}) {
      for (const size_t row_gap : Sizes{0, 5}) {
        for (const size_t column_bytes : Sizes{8, 9, 16, 2048}) {
          CheckBlock(isa, {kTransposeRows, cols, cols / 2 + row_gap, column_bytes}, random);
        }
      }
    }
  }
}

TEST_CASE("blocks of 64 rows of nibbles become columns of any stride, and go back") {
  SplitMix64 random(38);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t cols : Sizes{0, 2, 30, 32, 34, 62, 64, 66, 130}) {
      for (const size_t row_gap : Sizes{0, 5}) {
        for (const size_t column_bytes : Sizes{32, 33, 64, 2048}) {
          for (const uint8_t mask : {uint8_t{0}, uint8_t{0x88}}) {
            const Panel panel = {kWideTransposeRows, cols, cols / 2 + row_gap, column_bytes, mask};
            CheckWideBlock(isa, panel, random);
          }
        }
      }
    }
  }
}

TEST_CASE("panels of nibbles of any size become columns, and go back") {
  SplitMix64 random(36);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t rows : Sizes{0, 2, 14, 16, 18, 30, 32, 64, 66, 130, 178, 512, 594, 1026}) {
      for (const size_t cols : Sizes{0, 1, 2, 3, 31, 33, 63, 64, 67, 127, 128, 130, 259}) {
        CheckPanel(isa, {rows, cols, (cols + 1) / 2, rows / 2}, random);
        CheckPanel(isa, {rows, cols, (cols + 1) / 2 + 3, rows / 2 + 13, 0x88}, random);
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
