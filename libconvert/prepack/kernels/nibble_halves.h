#pragma once

// Brings 32 rows of nibbles into the order of instructions that multiply two neighbouring columns
// at a time, with rows n and n + 16 in one byte:
//
//     rows     row n, byte k/2, low half when k is even       (32 rows of nibbles)
//     halves   byte (k/2)·32 + (n mod 16)·2 + k mod 2, low half when n < 16
//
// `cols` is even. Rows are `row_bytes` apart; both sides have any alignment, and they must not
// overlap.

#include <cstddef>
#include <cstdint>

namespace prepack {

inline constexpr size_t kHalvesRows = 32;

// Bytes that `cols` columns become.
constexpr size_t HalvesBytes(size_t cols) {
  return cols / 2 * kHalvesRows;
}

// Reads cols / 2 bytes of each row.
using RowsToHalvesFn = void(const uint8_t* rows, size_t row_bytes, size_t cols, uint8_t* halves);
using HalvesToRowsFn = void(const uint8_t* halves, size_t cols, size_t row_bytes, uint8_t* rows);

}  // namespace prepack
