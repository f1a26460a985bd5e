#ifndef PREPACK_LAYOUTS_ZENTORCH_DA8W4_H_
#define PREPACK_LAYOUTS_ZENTORCH_DA8W4_H_

// zentorch/da8w4: W4A8 for torch.ops.zentorch.zentorch_dynamic_qlinear, with activations quantized
// per token, symmetric, by the op. What vLLM picks on AMD CPUs for symmetric 4-bit weights, also
// where the checkpoint says 16-bit activations.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/DynamicQLinear.cpp, as called by vLLM 0.32.0,
// vllm/model_executor/kernels/linear/mixed_precision/zentorch.py.
//
// weight, I8 [N, K/2]: the same bytes as symmetric zentorch/woq: row-major nibbles, even input
// channel in the low half, two's complement (code XOR 8).
// weight_scale, bf16 or f32 [G, N]. bias, bf16.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kZentorchDa8w4;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_ZENTORCH_DA8W4_H_
