#ifndef PREPACK_LAYOUTS_VLLM_INT8_VNNI_H_
#define PREPACK_LAYOUTS_VLLM_INT8_VNNI_H_

// vllm-cpu/int8-vnni: W8A8 for torch.ops._C.int8_scaled_mm_with_quant of vLLM's CPU backend, with
// activations quantized per token, symmetric, by the op.
// Mirrors vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm.cpp and gemm_int8.cpp.
//
// weight, I8 [N, K + 4]: per 32 output channels, 32 · K values and then a sum for each channel. For
// every four input channels, those of the 32 output channels side by side:
//
//     byte   0           4           …  128                …  32·K          32·K + 4
//            n0 k0…k3    n1 k0…k3    …  n0 k4…k7  n1 …     …  i32 sum(n0)   i32 sum(n1)  …
//
// The sums are 128 · Σ_k w(n, k): the kernel shifts activations to unsigned bytes.
// weight_scale, f32 [N]; one for the whole tensor is repeated. bias, f32.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kVllmInt8Vnni;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_VLLM_INT8_VNNI_H_
