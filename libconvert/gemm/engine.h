#ifndef PREPACK_GEMM_ENGINE_H_
#define PREPACK_GEMM_ENGINE_H_

// The matrix multiplication that verify runs on packed weights: y = x · Wᵀ for 4-bit W.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace prepack {

// Operands of y[M, N] = x[M, K] · W[N, K]ᵀ with W[n, k] = (code − zero_point) · scale.
// All arrays are dense and row-major; the caller owns them.
struct W4A16Problem {
  uint64_t m = 0;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t group_size = 0;
  std::span<const float> x;              // [M, K], values that bf16 can hold
  std::span<const std::byte> codes;      // [N, K / 2], unsigned, even k in the low half
  std::span<const float> scales;         // [N, G]
  std::span<const uint8_t> zero_points;  // [N, G]; empty: 8 throughout
};

// kUsage when a size is zero, K is odd, the group size does not divide K, or an array has another
// size than the problem says. Every engine begins with it.
Status CheckProblem(const W4A16Problem& problem, std::span<const float> y);

// What ran, for the report.
struct GemmInfo {
  std::string implementation;  // "brg_matmul:avx2"
  // (code − zero_point) · scale is rounded to bf16 before it is multiplied.
  bool rounds_weights_to_bf16 = true;
  std::string activation_type;  // "bf16", or "f32 (bf16 values)" where the CPU has no bf16 kernel
};

class GemmEngine {
 public:
  virtual ~GemmEngine() = default;
  // "onednn 3.13.2"
  virtual std::string name() const = 0;
  // Fills y [M, N], rounded to bf16 as a bf16 kernel stores it.
  virtual Result<GemmInfo> Run(const W4A16Problem& problem, std::span<float> y) = 0;
};

// oneDNN on the CPU; kUnavailable when the program was built without it or no engine can be made
// here, with the reason.
Result<std::unique_ptr<GemmEngine>> MakeOneDnnEngine();

}  // namespace prepack

#endif  // PREPACK_GEMM_ENGINE_H_
