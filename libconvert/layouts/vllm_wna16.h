#ifndef PREPACK_LAYOUTS_VLLM_WNA16_H_
#define PREPACK_LAYOUTS_VLLM_WNA16_H_

// vllm-cpu/wna16: W4A16 for torch.ops._C.cpu_gemm_wna16 of vLLM's CPU backend.
// Mirrors vLLM 0.32.0: csrc/cpu/cpu_wna16.cpp, csrc/cpu/micro_gemm/cpu_micro_gemm_vec.hpp and
// vllm/model_executor/kernels/linear/mixed_precision/cpu.py.
//
// weight, I32 [N/16, 2K]: per block of 16 output channels and per input channel one 64-bit word,
// channel 16b in its lowest nibble. For block 0, low nibble of each byte first:
//
//     byte   0          1                7          8
//            n0k0 n1k0  n2k0 n3k0  …  n14k0 n15k0   n0k1 n1k1  …
//
// Codes are unsigned also when symmetric: the kernel then subtracts 8.
// weight_scale, [G, N], bf16 or f16 as the activations are.
// weight_zero_point, I32 [G, N/8], only when asymmetric: nibble g·N + n, unsigned.

#include <cstdint>

#include "layouts/layout.h"

namespace prepack {

inline constexpr uint64_t kWna16Block = 16;     // channels per 64-bit word
inline constexpr uint64_t kWna16Multiple = 32;  // of N and K, asked for by the kernel

// Position of a nibble: nibble p is in byte p / 2, low half when p is even.
constexpr uint64_t Wna16WeightNibble(uint64_t n, uint64_t k, uint64_t total_k) {
  return (n / kWna16Block * total_k + k) * kWna16Block + n % kWna16Block;
}
constexpr uint64_t Wna16ZeroPointNibble(uint64_t n, uint64_t g, uint64_t total_n) {
  return g * total_n + n;
}

static_assert(Wna16WeightNibble(0, 0, 32) == 0);
static_assert(Wna16WeightNibble(1, 0, 32) == 1);            // the next channel: the next nibble
static_assert(Wna16WeightNibble(0, 1, 32) == 16);           // the next input: the next word
static_assert(Wna16WeightNibble(16, 0, 32) == 16ULL * 32);  // the next block
static_assert(Wna16WeightNibble(31, 31, 32) == 32ULL * 32 - 1);  // the last one

extern const Layout kVllmWna16;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_VLLM_WNA16_H_
