#pragma once

// Transposes a panel of nibbles of any size:
//
//     rows     row r, byte k/2, low half when k is even           (`rows` rows of `cols` nibbles)
//     columns  column k, byte r/2, low half when r is even
//
// Rows are `row_bytes` apart, columns `column_bytes`. The number of rows is even. That of columns
// may be odd: then the last half byte of each row is ignored, and written as zero by the inverse.
// Every byte of columns is XORed with `mask`, 0 or 0x88, for codes that are stored with another
// sign. All instruction sets write the same bytes.

#include <cstddef>
#include <cstdint>

namespace prepack {

void NibbleRowsToColumns(const uint8_t* rows, size_t row_bytes, size_t row_count, size_t cols,
                         uint8_t mask, uint8_t* columns, size_t column_bytes);
// The inverse.
void NibbleColumnsToRows(const uint8_t* columns, size_t column_bytes, size_t row_count, size_t cols,
                         uint8_t mask, uint8_t* rows, size_t row_bytes);

}  // namespace prepack
