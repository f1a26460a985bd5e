// Kernels that multiply bf16 activations with 4-bit weights rounded to bf16: zentorch/woq
// (zentorch_woq_linear) and onednn/w4a16 (brg_matmul with fpmath_mode bf16). w = (u - z) * s in
// f32, rounded to bf16 with subnormals to zero; f32 sums; the bias in f32; rounded to bf16.
// They differ in the order of the codes and in how they store zero points.

#include <memory>

#include "gemm/float_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

class WeightOnlyModel : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  // Where code (n, k) lies, counted in nibbles.
  virtual uint64_t NibbleOf(uint64_t n, uint64_t in_k) const = 0;
  // Zero point `index` of [G, N].
  virtual int ZeroPoint(uint64_t index) const = 0;

  void DecodeBlock(uint64_t n0, uint64_t rows, float* w) const override {
    const bool symmetric = packed().zero_point.empty();
    for (uint64_t k0 = 0; k0 < k(); k0 += packed().group_size) {
      for (uint64_t i = 0; i < rows; ++i) {
        const uint64_t parameter = k0 / packed().group_size * n() + n0 + i;
        const float scale = scales()[parameter];
        const int zero = symmetric ? 0 : ZeroPoint(parameter);
        for (uint64_t in_k = k0; in_k < k0 + packed().group_size; ++in_k) {
          const int nibble = LoadNibble(packed().weight, NibbleOf(n0 + i, in_k));
          const int value = symmetric ? SignedNibble(nibble) : nibble - zero;
          w[in_k * kBlock + i] =
              RoundByInstruction(DType::kBF16, static_cast<float>(value) * scale);
        }
      }
    }
  }
};

class ZentorchWoqModel final : public WeightOnlyModel {
 public:
  using WeightOnlyModel::WeightOnlyModel;

 private:
  uint64_t NibbleOf(uint64_t n, uint64_t in_k) const override { return n * k() + in_k; }
  int ZeroPoint(uint64_t index) const override { return LoadS8(packed().zero_point, index); }
};

class OneDnnW4A16Model final : public WeightOnlyModel {
 public:
  using WeightOnlyModel::WeightOnlyModel;

 private:
  uint64_t NibbleOf(uint64_t n, uint64_t in_k) const override {
    return in_k * WeightOnlyModel::n() + n;
  }
  int ZeroPoint(uint64_t index) const override { return LoadNibble(packed().zero_point, index); }
};

// What the two have in common.
void CheckWeightOnly(const PackedOperands& packed, const ModelInput& input, OperandCheck& check) {
  const uint64_t groups = packed.k / packed.group_size;
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kBF16, DType::kF32});
  check.Bytes("weight_scale", packed.scale, {groups, packed.n, DTypeBits(packed.scale_dtype) / 8});
  check.Bias(packed, {DType::kBF16, DType::kF32});
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeZentorchWoqModel(const PackedOperands& packed,
                                                          const ModelInput& input) {
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.k % 8 == 0, "K must be a multiple of 8", packed.k);
  check.Bytes("weight", packed.weight, {packed.n, packed.k / 2});
  if (!packed.zero_point.empty()) {
    check.Bytes("weight_zero_point", packed.zero_point, {packed.k / packed.group_size, packed.n});
  }
  CheckWeightOnly(packed, input, check);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<ZentorchWoqModel>(
      packed, input, std::vector<float>(input.x.begin(), input.x.end())));
}

Result<std::unique_ptr<KernelModel>> MakeOneDnnW4A16Model(const PackedOperands& packed,
                                                          const ModelInput& input) {
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.n % 2 == 0, "N must be even", packed.n);
  check.Bytes("weight", packed.weight, {packed.k, packed.n / 2});
  if (!packed.zero_point.empty()) {
    check.Bytes("weight_zero_point", packed.zero_point,
                {packed.k / packed.group_size, packed.n / 2});
  }
  CheckWeightOnly(packed, input, check);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<OneDnnW4A16Model>(
      packed, input, std::vector<float>(input.x.begin(), input.x.end())));
}

}  // namespace prepack
