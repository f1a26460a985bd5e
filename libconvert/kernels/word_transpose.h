#ifndef PREPACK_KERNELS_WORD_TRANSPOSE_H_
#define PREPACK_KERNELS_WORD_TRANSPOSE_H_

// Transposes a matrix of 32-bit words:
//
//     in    word [r, c] at byte r · in_stride + 4 · c
//     out   word [c, r] at byte c · out_stride + 4 · r
//
// Of any alignment: they may lie in a file.
//
// Checkpoints that pack codes along K hold word [k / 8, n]; a panel wants word [n, k / 8]. The
// codes inside a word are already in the order of a panel. All versions write the same bytes.

#include <cstddef>
#include <cstdint>

#include "base/isa.h"

namespace prepack {

using TransposeWordsFn = void (*)(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                                  std::byte* out, size_t out_stride);

// The version for one instruction set, which must be supported here.
TransposeWordsFn TransposeWordsFor(Isa isa);

void TransposeWordsScalar(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                          std::byte* out, size_t out_stride);
void TransposeWordsAvx2(const std::byte* in, size_t in_stride, size_t rows, size_t cols,
                        std::byte* out, size_t out_stride);

}  // namespace prepack

#endif  // PREPACK_KERNELS_WORD_TRANSPOSE_H_
