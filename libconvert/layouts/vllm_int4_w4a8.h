#ifndef PREPACK_LAYOUTS_VLLM_INT4_W4A8_H_
#define PREPACK_LAYOUTS_VLLM_INT4_W4A8_H_

// vllm-cpu/int4-w4a8: W4A8 for torch.ops._C.int4_scaled_mm_cpu of vLLM's CPU backend, with
// activations quantized per token by the op. What vLLM picks on CPUs with AMX for 4-bit weights,
// also where the checkpoint says 16-bit activations.
// Mirrors vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm_int4.cpp and
// vllm/model_executor/kernels/linear/mixed_precision/cpu.py.
//
// Blocks of 32 output by b = min(group size, 128) input channels, one after the other along K.
//
// weight, U8 [N/32, K/b, 16·b + 128]: of a block first the codes, 64 bytes for every four input
// channels; in a byte, channels c (low half) and c + 8 (high half). Low half first:
//
//     byte   0           1           …  4           …  32            …  64           …
//            n0k0 n8k0   n0k1 n8k1   …  n1k0 n9k0   …  n16k0 n24k0   …  n0k4 n8k4    …
//
// then for each of the 32 channels an i32: Σ over the block of (code − zero point).
// weight_scale, f32 [N/32, G, 32]: bf16 values widened, as vLLM feeds them.
// weight_zero_point, I8 [N/32, G, 32], always: 8 where the weights are symmetric. bias, f32.

#include "layouts/layout.h"

namespace prepack {

inline constexpr uint64_t kW4A8Width = 32;        // output channels per block
inline constexpr uint64_t kW4A8MostInputs = 128;  // input channels per block

// Input channels per block.
constexpr uint64_t W4A8BlockInputs(uint64_t group_size) {
  return group_size < kW4A8MostInputs ? group_size : kW4A8MostInputs;
}
// Bytes of a block of b input channels: codes, then sums.
constexpr uint64_t W4A8BlockBytes(uint64_t b) {
  return kW4A8Width * b / 2 + kW4A8Width * 4;
}
// Position of a nibble inside a block: nibble p is in byte p / 2, low half when p is even.
constexpr uint64_t W4A8BlockNibble(uint64_t n, uint64_t k) {
  const uint64_t byte = k / 4 * 64 + n / 16 * 32 + n % 8 * 4 + k % 4;
  return 2 * byte + n / 8 % 2;
}

static_assert(W4A8BlockNibble(0, 0) == 0);
static_assert(W4A8BlockNibble(8, 0) == 1);  // the other half of the byte
static_assert(W4A8BlockNibble(0, 1) == 2);  // the next input: the next byte
static_assert(W4A8BlockNibble(31, 3) == 127);

extern const Layout kVllmInt4W4A8;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_VLLM_INT4_W4A8_H_
