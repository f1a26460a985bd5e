#ifndef PREPACK_LAYOUTS_ONEDNN_W8A8_H_
#define PREPACK_LAYOUTS_ONEDNN_W8A8_H_

// onednn/w8a8: int8 weights for oneDNN's matmul primitive with weights requested as format `any`:
// the primitive says in which blocked form it wants them (blocked_desc.h), and that is what is
// written. vLLM's create_onednn_scaled_mm_handler asks with the same attributes. Mirrors
// oneDNN 3.13: src/cpu/x64/matmul/brgemm_matmul_utils.cpp; vLLM 0.32.0: csrc/cpu/dnnl_helper.cpp.
//
// On CPUs with AVX-512 VNNI and without AMX the answer is BA16a64b4a for every shape: N and K
// padded to 64; per 64 output by 64 input channels, for every four input channels those of the 64
// output channels side by side:
//
//     byte   0           4           …  256                …  4096            …  64·K64
//            n0 k0…k3    n1 k0…k3    …  n0 k4…k7  …        …  n0 k64…k67  …   …  n64 k0…k3  …
//
// then i32 −128 · Σ_k w(k, n) per output channel, because activations are signed and the
// instruction wants them unsigned; then, for static activations with a zero point, i32 −Σ_k w(k,
// n). This is the default; other CPUs want other forms. Which one was written stands in the
// manifest.
//
// weight, U8 [bytes]. weight_scale, f32 [N]. weight_sum, f32 [N] = Σ_k w · scale, for activations
// with zero points. input_scale, f32 [1], and input_zero_point, i32 [1], of static activations.
// bias in the dtype of the activations.

#include "prepack/layouts/layout.h"

namespace prepack {

// The form that is written unless the request says otherwise.
BlockedDesc DefaultW8A8Desc(const PackRequest& request);

extern const Layout kOneDnnW8A8;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_ONEDNN_W8A8_H_
