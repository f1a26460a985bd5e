#ifndef PREPACK_LAYOUTS_ZENTORCH_WOQ_H_
#define PREPACK_LAYOUTS_ZENTORCH_WOQ_H_

// zentorch/woq: W4A16 for torch.ops.zentorch.zentorch_woq_linear.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/WOQ_Linear.cpp and WeightReorder.cpp, as called by vLLM
// 0.32.0, vllm/model_executor/kernels/linear/mixed_precision/zentorch.py.
//
// weight, I32 [N, K/8]: row-major nibbles, even input channel in the low half (low nibble first):
//
//     byte   0          1          …  K/2
//            n0k0 n0k1  n0k2 n0k3  …  n1k0 n1k1  …
//
// Symmetric: two's complement (code − 8) & 15, which is code XOR 8. Asymmetric: the unsigned code.
// The consumer passes the transposed view [K/8, N].
// weight_scale, bf16 [G, N]. weight_zero_point, I8 [G, N] with values 0 … 15, if and only if
// asymmetric: its presence is what selects unsigned codes. A bf16 tensor of that name would change
// the formula, so none is ever written.

#include "layouts/layout.h"

namespace prepack {

extern const Layout kZentorchWoq;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_ZENTORCH_WOQ_H_
