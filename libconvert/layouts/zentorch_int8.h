#ifndef PREPACK_LAYOUTS_ZENTORCH_INT8_H_
#define PREPACK_LAYOUTS_ZENTORCH_INT8_H_

// zentorch/int8: W8A8 for torch.ops.zentorch.zentorch_dynamic_qlinear, with activations quantized
// per token, symmetric, by the op.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/DynamicQLinear.cpp, as called by vLLM 0.32.0,
// vllm/model_executor/kernels/linear/scaled_mm/zentorch.py.
//
// weight, I8 [N, K], row-major. weight_scale [N], bf16 as vLLM casts it, or f32, with which results
// are 0.1 to 0.4 dB better. bias, bf16.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kZentorchInt8;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_ZENTORCH_INT8_H_
