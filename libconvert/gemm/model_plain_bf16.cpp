// plain/bf16: any linear layer with bf16 weights, row-major; sums in f32.

#include <memory>

#include "gemm/float_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

class PlainBf16Model final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  void DecodeBlock(uint64_t n0, uint64_t rows, float* w) const override {
    for (uint64_t in_k = 0; in_k < k(); ++in_k) {
      for (uint64_t i = 0; i < rows; ++i) {
        w[in_k * kBlock + i] = BF16ToF32(Load<uint16_t>(packed().weight, (n0 + i) * k() + in_k));
      }
    }
  }
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakePlainBf16Model(const PackedOperands& packed,
                                                        const ModelInput& input) {
  OperandCheck check;
  check.Bytes("weight", packed.weight, {packed.n, packed.k, sizeof(uint16_t)});
  check.Absent("weight_scale", packed.scale);
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {input.dtype});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<PlainBf16Model>(
      packed, input, std::vector<float>(input.x.begin(), input.x.end())));
}

}  // namespace prepack
