// plain/bf16 and plain/bf16-conv1d: any linear layer with bf16 weights, [N, K] or, as a Conv1D has
// them, [K, N]; sums in f32.

#include <memory>

#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

class PlainBf16Model final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  void Decode(const ModelPiece& piece, float* w) const override {
    for (uint64_t i = 0; i < piece.rows; ++i) {
      const uint64_t start = (piece.n0 + i) * k() + piece.k0;
      for (uint64_t j = 0; j < piece.inputs; ++j) {
        w[j * kStripChannels + i] = BF16ToF32(Load<uint16_t>(packed().weight, start + j));
      }
    }
  }
};

class PlainBf16Conv1dModel final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  void Decode(const ModelPiece& piece, float* w) const override {
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const uint64_t start = (piece.k0 + j) * packed().n + piece.n0;
      for (uint64_t i = 0; i < piece.rows; ++i) {
        w[j * kStripChannels + i] = BF16ToF32(Load<uint16_t>(packed().weight, start + i));
      }
    }
  }
};

template <typename Model>
Result<std::unique_ptr<KernelModel>> Make(const PackedOperands& packed, const ModelInput& input) {
  OperandCheck check;
  check.Bytes("weight", packed.weight, {packed.n, packed.k, sizeof(uint16_t)});
  check.Absent("weight_scale", packed.scale);
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {input.dtype});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Model>(packed, input));
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakePlainBf16Model(const PackedOperands& packed,
                                                        const ModelInput& input) {
  return Make<PlainBf16Model>(packed, input);
}

Result<std::unique_ptr<KernelModel>> MakePlainBf16Conv1dModel(const PackedOperands& packed,
                                                              const ModelInput& input) {
  return Make<PlainBf16Conv1dModel>(packed, input);
}

}  // namespace prepack
