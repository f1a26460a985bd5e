#pragma once

// 4-bit codes that lie by output channel turned into columns, one per input channel, and back:
//
//     words     word [r, n], nibble i: the code of output channel n at input channel 8·r + i
//     columns   column k: the codes of all output channels at input channel k, a nibble each
//
// As columns, codes move along K by copying whole columns: that is how activation order is applied
// without touching single codes. Where a channel lies in a column is known to SplitColumns and
// JoinColumns of one instruction set only, called with the same number of channels. The columns of
// SplitOrderedColumns hold channels in order, an even one in the low half of a byte. AWQ's GEMM
// layout is columns in an order of its own (awq.h).

#include <cstddef>
#include <cstdint>

namespace prepack {

// Output channels come in eights: the kernels take no other number.
inline constexpr size_t kColumnChannels = 8;
inline constexpr size_t kCodesPerWideWord = 8;
inline constexpr size_t kWideWordBytes = sizeof(uint32_t);

constexpr size_t ColumnBytes(size_t channels) {
  return channels / 2;
}

// Word [r, n] is at byte r · row_stride + 4 · n of `words`, which may have any alignment; column k
// is at columns + k · column_stride, and has ColumnBytes(channels) bytes.
using SplitColumnsFn = void(const std::byte* words, size_t row_stride, size_t rows, size_t channels,
                            uint8_t* columns, size_t column_stride);
// The inverse; word [r, n], of `rows` rows, is words[r · words_stride + n]. With input channel k of
// the words taken from column picks[k].
using JoinColumnsFn = void(const uint8_t* columns, size_t column_stride, const uint32_t* picks,
                           size_t rows, size_t channels, uint32_t* words, size_t words_stride);
// The same for 8 · rows columns of AWQ's GEMM layout, in their order.
using JoinAwqColumnsFn = void(const uint8_t* columns, size_t column_stride, size_t rows,
                              size_t channels, uint32_t* words, size_t words_stride);

}  // namespace prepack
