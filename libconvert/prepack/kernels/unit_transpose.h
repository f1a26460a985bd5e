#pragma once

// Transposes a matrix of units of U = 1, 2, 4 or 8 bytes:
//
//     in    unit [r, c] at byte r · in_stride + U · c
//     out   unit [c, r] at byte c · out_stride + U · r
//
// Of any alignment: they may lie in a file. They must not overlap, and neither must the rows of
// either.
//
// Checkpoints that pack codes along K hold word [k / 8, n]; a panel wants word [n, k / 8]. The
// codes inside a word are already in the order of a panel. Layouts for instructions that multiply
// four bytes (or two) at a time want the units of some 32 output channels side by side; those that
// keep sums of the codes of a channel get them while the codes are in registers.

#include <cstddef>
#include <cstdint>

namespace prepack {

using TransposeUnitsFn = void(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                              std::byte* out, size_t out_stride);

// Units of four signed codes; adds the sum of the codes of row r to sums[r]. That what is in `sums`
// leaves room for it is the caller's business.
using TransposeSummedFn = void(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                               std::byte* out, size_t out_stride, int32_t* sums);

}  // namespace prepack
