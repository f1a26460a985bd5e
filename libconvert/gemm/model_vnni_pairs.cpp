// The two layouts whose blocks hold pairs of input channels: vllm-cpu/fp8-vnni
// (_C::fp8_scaled_mm_cpu, csrc/cpu/sgl-kernels/gemm_fp8.cpp) and vllm-cpu/bf16-vnni
// (_C::weight_packed_linear, csrc/cpu/sgl-kernels/gemm.cpp).

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "gemm/float_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

constexpr uint64_t kChannels = 32;  // of a block; the last may have fewer
constexpr uint64_t kBlockK = 128;   // input channels per FP8 scale

// Where element (n, k) lies, counted in elements.
uint64_t PairOrder(uint64_t channels, uint64_t inputs, uint64_t n, uint64_t k) {
  const uint64_t block = n / kChannels;
  const uint64_t height = std::min(kChannels, channels - kChannels * block);
  return block * kChannels * inputs + k / 2 * 2 * height + n % kChannels * 2 + k % 2;
}

class Bf16VnniModel final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  void DecodeBlock(uint64_t n0, uint64_t rows, float* w) const override {
    for (uint64_t in_k = 0; in_k < k(); ++in_k) {
      for (uint64_t i = 0; i < rows; ++i) {
        const uint64_t index = PairOrder(n(), k(), n0 + i, in_k);
        w[in_k * kBlock + i] = BF16ToF32(Load<uint16_t>(packed().weight, index));
      }
    }
  }
};

// The kernel's decoder. It is not e4m3: it treats every code as a normal number, so that zero is
// 2^-7, subnormals are wrong, and what is no number is 480.
float DecodeLikeKernel(uint8_t code) {
  const float magnitude =
      std::ldexp(1.0F + static_cast<float>(code & 7) / 8.0F, (code >> 3 & 15) - 7);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

class Fp8VnniModel final : public FloatModel {
 public:
  Fp8VnniModel(const PackedOperands& packed, const ModelInput& input, std::vector<float> x)
      : FloatModel(packed, input, std::move(x)) {
    for (size_t code = 0; code < values_.size(); ++code) {
      values_[code] = DecodeLikeKernel(static_cast<uint8_t>(code));
    }
  }

 private:
  static constexpr uint64_t kRowsByVector = 4;  // more than these are multiplied as one bf16 GEMM

  bool ScalesSums() const { return m() <= kRowsByVector; }

  float ScaleOf(uint64_t n, uint64_t in_k) const {
    return scales()[n / packed().block_rows * CeilDiv(k(), kBlockK) + in_k / kBlockK];
  }

  void DecodeBlock(uint64_t n0, uint64_t rows, float* w) const override {
    for (uint64_t in_k = 0; in_k < k(); ++in_k) {
      for (uint64_t i = 0; i < rows; ++i) {
        const uint64_t index = PairOrder(n(), k(), n0 + i, in_k);
        const float value = values_[Load<uint8_t>(packed().weight, index)];
        w[in_k * kBlock + i] =
            ScalesSums() ? value : RoundByInstruction(DType::kBF16, value * ScaleOf(n0, in_k));
      }
    }
  }

  Sums MultiplyRow(uint64_t m, uint64_t n0, uint64_t rows, const float* w) const override {
    if (!ScalesSums()) return FloatModel::MultiplyRow(m, n0, rows, w);
    Sums results{};
    for (uint64_t i = 0; i < rows; ++i) results[i] = Bias(n0 + i);
    for (uint64_t begin = 0; begin < k(); begin += kBlockK) {
      Sums sums{};
      AddProducts(m, begin, std::min(k(), begin + kBlockK), w, sums);
      for (uint64_t i = 0; i < rows; ++i) {
        results[i] = std::fma(sums[i], ScaleOf(n0, begin), results[i]);
      }
    }
    return results;
  }

  double WeightFactor(uint64_t n, uint64_t in_k) const override {
    return ScalesSums() ? static_cast<double>(ScaleOf(n, in_k)) : 1.0;
  }

  std::array<float, 256> values_{};  // by code
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeBf16VnniModel(const PackedOperands& packed,
                                                       const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.n % 16 == 0, "N must be a multiple of 16", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Bytes("weight", packed.weight, {packed.n, packed.k, sizeof(uint16_t)});
  check.Absent("weight_scale", packed.scale);
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Bf16VnniModel>(
      packed, input, std::vector<float>(input.x.begin(), input.x.end())));
}

Result<std::unique_ptr<KernelModel>> MakeFp8VnniModel(const PackedOperands& packed,
                                                      const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.n % kChannels == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  check.Rule(packed.block_rows % kChannels == 0,
             "a scale must cover a multiple of 32 output channels", packed.block_rows);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight, {packed.n, packed.k});
  check.Bytes("weight_scale", packed.scale,
              {CeilDiv(packed.n, packed.block_rows), CeilDiv(packed.k, kBlockK), sizeof(float)});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Fp8VnniModel>(
      packed, input, std::vector<float>(input.x.begin(), input.x.end())));
}

}  // namespace prepack
