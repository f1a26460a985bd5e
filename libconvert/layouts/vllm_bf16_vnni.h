#ifndef PREPACK_LAYOUTS_VLLM_BF16_VNNI_H_
#define PREPACK_LAYOUTS_VLLM_BF16_VNNI_H_

// vllm-cpu/bf16-vnni: bf16 weights for torch.ops._C.weight_packed_linear of vLLM's CPU backend:
// what modules become that no kernel for quantized weights takes (--fallback dequantize). Mirrors
// vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm.cpp.
//
// weight, BF16 [N, K]: per 32 output channels, for every two input channels those of the 32 side by
// side (elements of two bytes):
//
//     element  0            2            …  64                …  32·K
//              n0k0 n0k1    n1k0 n1k1    …  n0k2 n0k3  …      …  n32k0 n32k1  …
//
// No scales: they are multiplied in. bias, f32.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kVllmBf16Vnni;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_VLLM_BF16_VNNI_H_
