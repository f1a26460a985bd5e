#ifndef PREPACK_LAYOUTS_ONEDNN_W4_H_
#define PREPACK_LAYOUTS_ONEDNN_W4_H_

// onednn/w4a16 and onednn/w4a8: 4-bit weights for oneDNN's matmul primitive with weights requested
// as format `any`. The primitive asks for a plain row-major matrix [K, N] on every CPU, so these
// bytes depend on neither instruction set nor version.
// Mirrors oneDNN 3.13: src/cpu/x64/matmul/brgemm_matmul_utils.cpp.
//
// weight, U8 [K, N/2]: row-major nibbles, even output channel in the low half:
//
//     byte   0          1          …  N/2
//            n0k0 n1k0  n2k0 n3k0  …  n0k1 n1k1  …
//
// Symmetric: data type s4, two's complement (code XOR 8). Asymmetric: u4, the code itself.
// weight_scale, f32 [G, N]; scales with mask 3 and groups {group size, 1}. weight_zero_point,
// U8 [G, N/2], nibbles of type u4, only when asymmetric: with u8 or s8 zero points, or bf16 scales,
// W4A8 falls back to a reference implementation, thousands of times slower. bias in the dtype of
// the activations.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kOneDnnW4A16;
extern const Layout kOneDnnW4A8;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_ONEDNN_W4_H_
