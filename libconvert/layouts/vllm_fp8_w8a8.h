#ifndef PREPACK_LAYOUTS_VLLM_FP8_W8A8_H_
#define PREPACK_LAYOUTS_VLLM_FP8_W8A8_H_

// vllm-cpu/fp8-w8a8-vnni4 and -plain: FP8 weights and activations for
// torch.ops._C.fp8_scaled_mm_with_quant of vLLM's CPU backend, which quantizes activations per
// token. Its packer float8_linear_prepack_cpu asks the CPU: with AMX-FP8 it puts four input
// channels side by side, otherwise one; same shape, same dtype, no tag. So they are two layouts,
// and each is garbage to a CPU of the other kind. Mirrors vLLM 0.32.0:
// csrc/cpu/sgl-kernels/gemm_fp8_w8a8.cpp.
//
// Blocks of 32 output by b input channels, b = min(group size, 128), halved until it divides K; v
// is 4 or 1:
//
// weight, F8_E4M3 [N/32, K/b, b, 32]: byte (n/32)·32K + (k/b)·32b + (k%b/v)·32v + (n%32)·v + k%b%v
// weight_scale, f32 [N/32, G, 32]; scales of blocks are repeated for their channels. bias, f32.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kVllmFp8W8A8Vnni4;
extern const Layout kVllmFp8W8A8Plain;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_VLLM_FP8_W8A8_H_
