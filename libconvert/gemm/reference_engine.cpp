// A portable W4A16 multiplication with the arithmetic of vLLM's cpu_gemm_wna16 on a CPU with
// AVX-512 BF16: w = (code − zero point) · scale in f32, rounded to bf16; for each output one f32
// sum over ascending k; the result rounded to bf16.

#include <cmath>
#include <limits>

#include "base/float_convert.h"
#include "gemm/dequantize_row.h"
#include "gemm/engine.h"

namespace prepack {
namespace {

// To bf16 and back as the CPU's instruction does it: to nearest even, and subnormal numbers count
// as zero.
float RoundLikeTheCpu(float value) {
  if (std::abs(value) < std::numeric_limits<float>::min()) return 0;
  return BF16ToF32(F32ToBF16(value));
}

class ReferenceEngine final : public GemmEngine {
 public:
  std::string name() const override { return "reference"; }

  Result<GemmInfo> Run(const W4A16Problem& problem, std::span<float> y) override {
    std::vector<float> weights(problem.k);
    for (uint64_t n = 0; n < problem.n; ++n) {
      DequantizeRow(problem, n, weights);
      for (float& weight : weights) weight = RoundLikeTheCpu(weight);
      for (uint64_t m = 0; m < problem.m; ++m) {
        const std::span<const float> x = problem.x.subspan(m * problem.k, problem.k);
        float sum = 0;
        for (uint64_t k = 0; k < problem.k; ++k) sum += x[k] * weights[k];
        y[m * problem.n + n] = BF16ToF32(F32ToBF16(sum));
      }
    }
    return GemmInfo{
        .implementation = "portable", .rounds_weights_to_bf16 = true, .activation_type = "bf16"};
  }
};

}  // namespace

std::unique_ptr<GemmEngine> MakeReferenceEngine() {
  return std::make_unique<ReferenceEngine>();
}

}  // namespace prepack
