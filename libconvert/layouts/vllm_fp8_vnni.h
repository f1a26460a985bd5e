#ifndef PREPACK_LAYOUTS_VLLM_FP8_VNNI_H_
#define PREPACK_LAYOUTS_VLLM_FP8_VNNI_H_

// vllm-cpu/fp8-vnni: FP8 weights with 16-bit activations for torch.ops._C.fp8_scaled_mm_cpu of
// vLLM's CPU backend.
// Mirrors vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm.cpp and gemm_fp8.cpp.
//
// weight, F8_E4M3 [N, K]: codes move, their bits do not change. Per 32 output channels, for every
// two input channels those of the 32 side by side:
//
//     byte   0            2            …  64                …  32·K
//            n0k0 n0k1    n1k0 n1k1    …  n0k2 n0k3  …      …  n32k0 n32k1  …
//
// Scales per block of 128 input channels: weight_scale_inv, f32 [⌈N / block rows⌉, ⌈K / 128⌉]. One
// for the whole tensor: weight_scale_inv, f32 [1, ⌈K / 128⌉], the scale repeated. One per output
// channel, for which the op has no form: weight_scale, f32 [N]; the consumer passes scales of 1 and
// multiplies the result. bias, f32.
//
// The kernel's decoder takes every code for a normal number: zeros and subnormals come out as up to
// ±2^-6 in units of the scale.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kVllmFp8Vnni;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_VLLM_FP8_VNNI_H_
