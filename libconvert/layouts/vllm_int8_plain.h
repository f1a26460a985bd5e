#ifndef PREPACK_LAYOUTS_VLLM_INT8_PLAIN_H_
#define PREPACK_LAYOUTS_VLLM_INT8_PLAIN_H_

// vllm-cpu/int8-plain: W8A8 for vLLM's oneDNN handler (create_onednn_scaled_mm_handler and
// onednn_scaled_mm), which takes plain weights and reorders them itself. For the activations that
// vllm-cpu/int8-vnni does not do: static, or with zero points.
// Mirrors vLLM 0.32.0: vllm/model_executor/kernels/linear/scaled_mm/cpu.py.
//
// weight, I8 [N, K], row-major. weight_scale, f32 [N].
// input_scale, f32 [1], of static activations; input_zero_point, i32 [1], when they have one.
// azp_adj, f32 [N] = Σ_k w · scale, when activations are dynamic or have zero points.
// bias in the dtype of the activations.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kVllmInt8Plain;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_VLLM_INT8_PLAIN_H_
