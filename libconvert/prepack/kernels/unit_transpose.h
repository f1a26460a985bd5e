#ifndef PREPACK_KERNELS_UNIT_TRANSPOSE_H_
#define PREPACK_KERNELS_UNIT_TRANSPOSE_H_

// Transposes a matrix of units of U = 1, 2, 4 or 8 bytes:
//
//     in    unit [r, c] at byte r · in_stride + U · c
//     out   unit [c, r] at byte c · out_stride + U · r
//
// Of any alignment: they may lie in a file. They must not overlap, and neither must the rows of
// either. All versions write the same bytes.
//
// Checkpoints that pack codes along K hold word [k / 8, n]; a panel wants word [n, k / 8]. The
// codes inside a word are already in the order of a panel. Layouts for instructions that multiply
// four bytes (or two) at a time want the units of some 32 output channels side by side; those that
// keep sums of the codes of a channel get them while the codes are in registers.

#include <cstddef>
#include <cstdint>

#include "prepack/base/isa.h"

namespace prepack {

using TransposeUnitsFn = void (*)(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                                  std::byte* out, size_t out_stride);

// Units of four signed codes; adds the sum of the codes of row r to sums[r]. That what is in `sums`
// leaves room for it is the caller's business.
using TransposeSummedFn = void (*)(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                                   std::byte* out, size_t out_stride, int32_t* sums);

struct UnitTranspose {
  TransposeUnitsFn bytes;
  TransposeUnitsFn pairs;    // units of two bytes
  TransposeUnitsFn words;    // units of four bytes
  TransposeUnitsFn doubles;  // units of eight bytes
  TransposeSummedFn summed_words;
};

// The versions for one instruction set, which must be supported here.
const UnitTranspose& UnitTransposeFor(Isa isa = ProcessIsa());

// The version for units of `unit_bytes` = 1, 2, 4 or 8.
TransposeUnitsFn TransposeUnitsFor(size_t unit_bytes, Isa isa = ProcessIsa());

// One object per instruction set, each in a file of its own that is compiled for it.
extern const UnitTranspose kUnitTransposeScalar;
extern const UnitTranspose kUnitTransposeAvx2;
extern const UnitTranspose kUnitTransposeAvx512;

}  // namespace prepack

#endif  // PREPACK_KERNELS_UNIT_TRANSPOSE_H_
