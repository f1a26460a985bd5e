// vllm-arm/int8-neon and vllm-arm/bf16-neon: the layers of an expert in _C::cpu_fused_moe_int8 and
// _C::cpu_fused_moe (csrc/cpu/micro_gemm/cpu_micro_gemm_int8_neon.hpp, cpu_micro_gemm_neon.hpp).
// Both keep the outputs of a layer in f32; x of type F32 gives them as they are. Sums of bf16 run
// over four input channels at a time and are rounded to odd; here they are rounded to nearest.

#include <algorithm>
#include <cstring>
#include <memory>

#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kSmmlaInputs = 8;
constexpr uint64_t kBfmmlaInputs = 4;
constexpr uint64_t kMmlaChannels = 8;  // of a panel
constexpr uint64_t kMmlaStep = 32;     // channels that the ops compute at a time

// Where element (n, k) lies in panels of eight channels, `inputs` of each side by side.
constexpr uint64_t MmlaElement(uint64_t n, uint64_t in_k, uint64_t k, uint64_t inputs) {
  const uint64_t panel = n / kMmlaChannels * kMmlaChannels * k;
  return panel + (in_k / inputs * kMmlaChannels + n % kMmlaChannels) * inputs + in_k % inputs;
}

class Int8NeonModel final : public RowsModel<ChannelModel> {
 public:
  Int8NeonModel(const PackedOperands& packed, const ModelInput& input)
      : RowsModel(
            packed, input,
            Shifted(QuantizeSgl(input.x, InputColumns(packed, input), Halfway::kToEven), -128)) {}

 private:
  void GatherRows(const ModelPiece& piece, Rows& rows) const override {
    for (uint64_t i = 0; i < piece.rows; ++i) {
      int8_t* to = &rows[i * kRunInputs];
      for (uint64_t j = 0, run = 0; j < piece.inputs; j += run) {
        const uint64_t in_k = piece.k0 + j;
        run = std::min(kSmmlaInputs - in_k % kSmmlaInputs, piece.inputs - j);
        const uint64_t from = MmlaElement(piece.n0 + i, in_k, k(), kSmmlaInputs);
        std::memcpy(to + j, packed().weight.data() + from, run);
      }
    }
  }

  float Finish(uint64_t m, uint64_t n, int32_t sum) const override {
    return static_cast<float>(sum) * (token_scales()[m] * scales()[n]) + Bias(n);
  }
};

class Bf16NeonModel final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  void Decode(const ModelPiece& piece, float* w) const override {
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      for (uint64_t i = 0; i < piece.rows; ++i) {
        const uint64_t at = MmlaElement(piece.n0 + i, piece.k0 + j, k(), kBfmmlaInputs);
        w[j * kStripChannels + i] = BF16ToF32(Load<uint16_t>(packed().weight, at));
      }
    }
  }
};

void CheckSizes(const PackedOperands& packed, uint64_t element, OperandCheck& check) {
  check.Rule(packed.n % kMmlaStep == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % kMmlaStep == 0, "K must be a multiple of 32", packed.k);
  check.Bytes("weight", packed.weight, {packed.n, packed.k, element});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kBF16, DType::kF16, DType::kF32});
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeInt8NeonModel(const PackedOperands& packed,
                                                       const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.group_size == packed.k, "a channel has one scale", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16, DType::kF16, DType::kF32});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight_scale", packed.scale, {packed.n, sizeof(float)});
  CheckSizes(packed, sizeof(int8_t), check);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Int8NeonModel>(packed, input));
}

Result<std::unique_ptr<KernelModel>> MakeBf16NeonModel(const PackedOperands& packed,
                                                       const ModelInput& input) {
  OperandCheck check;
  check.Type("x", input.dtype, {DType::kBF16, DType::kF32});
  check.Absent("weight_scale", packed.scale);
  CheckSizes(packed, sizeof(uint16_t), check);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Bf16NeonModel>(packed, input));
}

}  // namespace prepack
