// A portable W4A16 multiplication with the arithmetic of vLLM's cpu_gemm_wna16 on a CPU with
// AVX-512 BF16: w = (code − zero point) · scale in f32, rounded to bf16; for each output one f32 sum
// over ascending k; the result rounded to bf16.

#include "base/float_convert.h"
#include "gemm/engine.h"

namespace prepack {
namespace {

class ReferenceEngine final : public GemmEngine {
 public:
  std::string name() const override { return "reference"; }

  Result<GemmInfo> Run(const W4A16Problem& problem, std::span<float> y) override {
    std::vector<float> weights(problem.k);
    for (uint64_t n = 0; n < problem.n; ++n) {
      DecodeRow(problem, n, weights);
      for (uint64_t m = 0; m < problem.m; ++m) {
        const std::span<const float> x = problem.x.subspan(m * problem.k, problem.k);
        float sum = 0;
        for (uint64_t k = 0; k < problem.k; ++k) sum += x[k] * weights[k];
        y[m * problem.n + n] = BF16ToF32(F32ToBF16(sum));
      }
    }
    return GemmInfo{.implementation = "portable",
                    .rounds_weights_to_bf16 = true,
                    .activation_type = "bf16"};
  }

 private:
  static void DecodeRow(const W4A16Problem& problem, uint64_t n, std::span<float> weights) {
    const uint64_t groups = problem.k / problem.group_size;
    for (uint64_t k = 0; k < problem.k; ++k) {
      const auto byte = std::to_integer<unsigned>(problem.codes[(n * problem.k + k) / 2]);
      const int code = static_cast<int>(k % 2 == 0 ? byte & 15U : byte >> 4);
      const uint64_t group = n * groups + k / problem.group_size;
      const int zero_point = problem.zero_points.empty() ? 8 : problem.zero_points[group];
      const float weight = static_cast<float>(code - zero_point) * problem.scales[group];
      weights[k] = BF16ToF32(F32ToBF16(weight));
    }
  }
};

}  // namespace

std::unique_ptr<GemmEngine> MakeReferenceEngine() { return std::make_unique<ReferenceEngine>(); }

}  // namespace prepack
