// A portable W4A16 multiplication with the arithmetic of vLLM's cpu_gemm_wna16 (isa hint "vec",
// csrc/cpu/cpu_wna16.cpp) on a CPU with AVX-512 BF16: w = (code − zero point) · scale in f32,
// rounded to bf16; for each output one f32 sum over ascending k; the result rounded to bf16.
//
// A product of two bf16 values is exact in f32, so it makes no difference whether the compiler
// fuses it with the addition. Tests compare with outputs of the real op: every bit is equal.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "base/float_convert.h"
#include "base/parallel.h"
#include "gemm/engine.h"

namespace prepack {
namespace {

// Output channels that are summed side by side. Each keeps a sum of its own, in its own order; the
// compiler turns the 16 into vectors of whatever width the CPU has.
constexpr uint64_t kBlock = 16;

// `value` rounded to bf16 as VCVTNEPS2BF16 does it: like F32ToBF16, but subnormal numbers (below
// 2^-126) count as zero.
float RoundToBF16(float value) {
  const float kept = std::abs(value) < std::numeric_limits<float>::min() ? 0.0F : value;
  return BF16ToF32(F32ToBF16(kept));
}

// Decodes output channel n into column n % kBlock of `weights` [K, kBlock].
void DecodeChannel(const W4A16Problem& problem, uint64_t n, std::span<float> weights) {
  const uint64_t groups = problem.k / problem.group_size;
  const std::span<const std::byte> codes = problem.codes.subspan(n * problem.k / 2, problem.k / 2);
  float* out = weights.data() + n % kBlock;
  for (uint64_t group = 0; group < groups; ++group) {
    const uint64_t parameter = n * groups + group;
    const int zero_point = problem.zero_points.empty() ? 8 : problem.zero_points[parameter];
    std::array<float, 16> weight_of{};  // by code
    for (int code = 0; code < 16; ++code) {
      const float weight = static_cast<float>(code - zero_point) * problem.scales[parameter];
      weight_of[static_cast<size_t>(code)] = RoundToBF16(weight);
    }
    for (uint64_t k = group * problem.group_size; k < (group + 1) * problem.group_size; ++k) {
      const auto pair = std::to_integer<unsigned>(codes[k / 2]);
      out[k * kBlock] = weight_of[k % 2 == 0 ? pair & 15U : pair >> 4];
    }
  }
}

// Channels [n0, n0 + kBlock) of row m of y, of which the last block may have fewer.
void MultiplyRow(const W4A16Problem& problem, uint64_t m, uint64_t n0,
                 std::span<const float> weights, std::span<float> y) {
  const std::span<const float> x = problem.x.subspan(m * problem.k, problem.k);
  const float* w = weights.data();
  std::array<float, kBlock> sums{};
  for (const float value : x) {
    for (uint64_t i = 0; i < kBlock; ++i) sums[i] += value * w[i];
    w += kBlock;
  }
  const uint64_t rows = std::min(kBlock, problem.n - n0);
  for (uint64_t i = 0; i < rows; ++i) {
    y[m * problem.n + n0 + i] = RoundToBF16(sums[i]);
  }
}

class ReferenceEngine final : public GemmEngine {
 public:
  std::string name() const override { return "reference"; }

  Result<GemmInfo> Run(const W4A16Problem& problem, std::span<float> y) override {
    Status status = CheckProblem(problem, y);
    if (!status.ok()) return status;
    const auto blocks = static_cast<size_t>(CeilDiv(problem.n, kBlock));
    const auto threads = static_cast<unsigned>(std::min<size_t>(ThreadCount(0), blocks));
    std::vector<std::vector<float>> weights(threads);  // by worker
    status = ParallelFor(blocks, threads, [&](size_t block, unsigned worker) -> Status {
      const uint64_t n0 = block * kBlock;
      // Zero in the columns that the last block does not fill.
      weights[worker].assign(problem.k * kBlock, 0);
      for (uint64_t n = n0; n < std::min(problem.n, n0 + kBlock); ++n) {
        DecodeChannel(problem, n, weights[worker]);
      }
      for (uint64_t m = 0; m < problem.m; ++m) MultiplyRow(problem, m, n0, weights[worker], y);
      return {};
    });
    if (!status.ok()) return status;
    return GemmInfo{
        .implementation = "portable", .rounds_weights_to_bf16 = true, .activation_type = "bf16"};
  }
};

}  // namespace

std::unique_ptr<GemmEngine> MakeReferenceEngine() {
  return std::make_unique<ReferenceEngine>();
}

}  // namespace prepack
