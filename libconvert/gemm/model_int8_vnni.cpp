// vllm-cpu/int8-vnni: _C::int8_scaled_mm_with_quant (csrc/cpu/sgl-kernels/gemm_int8.cpp).
// Activations are u8 around 128; what the 128 adds is taken off by the compensation that is stored
// behind the values of each 32 channels.

#include <cmath>
#include <memory>

#include "gemm/integer_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

constexpr uint64_t kInt8VnniChannels = 32;  // of a block

class Int8VnniModel final : public ChannelModel {
 public:
  using ChannelModel::ChannelModel;

 private:
  uint64_t BlockStart(uint64_t n) const {
    return n / kInt8VnniChannels * kInt8VnniChannels * (k() + sizeof(int32_t));
  }

  void Decode(const ModelPiece& piece, int16_t* w) const override {
    const uint64_t start = BlockStart(piece.n0) + piece.n0 % kInt8VnniChannels * 4;
    constexpr uint64_t kStride = kInt8VnniChannels * 4;
    DecodeQuads(packed().weight.data() + start + piece.k0 / 4 * kStride, kStride, piece, w);
  }

  float Finish(uint64_t m, uint64_t n, int32_t sum) const override {
    const uint64_t behind_values = BlockStart(n) + kInt8VnniChannels * k();
    const auto compensation =
        Load<int32_t>(packed().weight.subspan(behind_values), n % kInt8VnniChannels);
    const int32_t corrected = WrappingAdd(sum, WrappingMul(-1, compensation));
    const float scaled = static_cast<float>(corrected) * token_scales()[m];
    return has_bias() ? std::fma(scaled, scales()[n], Bias(n)) : scaled * scales()[n];
  }
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeInt8VnniModel(const PackedOperands& packed,
                                                       const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.n % kInt8VnniChannels == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  check.Rule(packed.group_size == packed.k, "a channel has one scale", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight, {packed.n, packed.k + sizeof(int32_t)});
  check.Bytes("weight_scale", packed.scale, {packed.n, sizeof(float)});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Int8VnniModel>(
      packed, input, QuantizeSgl(input.x, InputColumns(packed, input), Halfway::kToEven)));
}

}  // namespace prepack
