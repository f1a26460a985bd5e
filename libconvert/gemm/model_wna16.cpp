// vllm-cpu/wna16: _C::cpu_gemm_wna16 (csrc/cpu/cpu_wna16.cpp, isa hint "vec") on a CPU with AVX-512
// BF16. w = (u - z) * s in f32, rounded to the activation type by the instruction; one f32 sum per
// output; the bias in f32; the result rounded by the instruction as well.
//
// A product of two 16-bit floats is exact in f32, so a fused multiply-add gives the same.

#include <memory>

#include "gemm/float_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

constexpr int kSymmetricZero = 8;

class Wna16Model final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  // One 64-bit word holds the codes of 16 output channels for one k, the first lowest.
  void DecodeBlock(uint64_t n0, uint64_t rows, float* w) const override {
    for (uint64_t k0 = 0; k0 < k(); k0 += packed().group_size) {
      const uint64_t parameter = k0 / packed().group_size * n() + n0;
      Sums scale{};
      Sums zero{};
      for (uint64_t i = 0; i < rows; ++i) {
        scale[i] = scales()[parameter + i];
        zero[i] = static_cast<float>(packed().zero_point.empty()
                                         ? kSymmetricZero
                                         : LoadNibble(packed().zero_point, parameter + i));
      }
      for (uint64_t in_k = k0; in_k < k0 + packed().group_size; ++in_k) {
        const auto word = Load<uint64_t>(packed().weight, n0 / kBlock * k() + in_k);
        for (uint64_t i = 0; i < kBlock; ++i) {
          const auto code = static_cast<float>(static_cast<int>(word >> (4 * i) & 15U));
          w[in_k * kBlock + i] = RoundByInstruction(dtype(), (code - zero[i]) * scale[i]);
        }
      }
    }
  }
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeWna16Model(const PackedOperands& packed,
                                                    const ModelInput& input) {
  const uint64_t groups = packed.k / packed.group_size;
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.n % 32 == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  check.Rule(packed.group_size % 2 == 0, "the group size must be even", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16, DType::kF16});
  check.Type("weight_scale", packed.scale_dtype, {input.dtype});
  check.Bytes("weight", packed.weight, {packed.n / 2, packed.k});
  check.Bytes("weight_scale", packed.scale, {groups, packed.n, 2});
  if (!packed.zero_point.empty()) {
    check.Bytes("weight_zero_point", packed.zero_point, {groups, packed.n / 2});
  }
  check.Bias(packed, {input.dtype});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Wna16Model>(
      packed, input, std::vector<float>(input.x.begin(), input.x.end())));
}

}  // namespace prepack
