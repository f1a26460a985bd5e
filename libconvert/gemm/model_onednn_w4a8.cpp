// onednn/w4a8: dnnl::matmul of s8 activations (one f32 scale per token) with s4 or u4 weights (f32
// scales and u4 zero points per group). The activations are those of the dynamic symmetric
// quantizer that vLLM has for oneDNN. The group sums are exact; oneDNN does not say in which order
// it scales them, here it is as in zentorch's kernel: (d * s_a) * s_w, groups ascending.

#include <memory>
#include <utility>

#include "gemm/integer_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

class OneDnnW4A8Model final : public IntegerModel {
 public:
  using IntegerModel::IntegerModel;

 private:
  void DecodeRows(uint64_t n0, uint64_t rows, int16_t* w) const override {
    for (uint64_t in_k = 0; in_k < k(); ++in_k) {
      const uint64_t parameter = in_k / packed().group_size * n();
      for (uint64_t i = 0; i < rows; ++i) {
        const int nibble = LoadNibble(packed().weight, in_k * n() + n0 + i);
        const int value = packed().zero_point.empty()
                              ? SignedNibble(nibble)
                              : nibble - LoadNibble(packed().zero_point, parameter + n0 + i);
        w[i * k() + in_k] = static_cast<int16_t>(value);
      }
    }
  }

  float Finish(uint64_t m, uint64_t n, std::span<const int32_t> sums) const override {
    return SumScaledGroups(m, n, sums);
  }

  double WeightScale(uint64_t n, uint64_t in_k) const override { return GroupScale(n, in_k); }
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeOneDnnW4A8Model(const PackedOperands& packed,
                                                         const ModelInput& input) {
  const uint64_t groups = packed.k / packed.group_size;
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.n % 2 == 0, "N must be even", packed.n);
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight, {packed.k, packed.n / 2});
  check.Bytes("weight_scale", packed.scale, {groups, packed.n, sizeof(float)});
  if (!packed.zero_point.empty()) {
    check.Bytes("weight_zero_point", packed.zero_point, {groups, packed.n / 2});
  }
  check.Bias(packed, {DType::kBF16, DType::kF16, DType::kF32});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<OneDnnW4A8Model>(
      packed, input, QuantizeDynamic(input.x, packed.k), packed.group_size));
}

}  // namespace prepack
