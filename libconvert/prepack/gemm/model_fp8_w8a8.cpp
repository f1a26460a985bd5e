// vllm-cpu/fp8-w8a8-vnni4 and -plain: _C::fp8_scaled_mm_with_quant
// (csrc/cpu/sgl-kernels/gemm_fp8_w8a8.cpp). Both operands are true e4m3; the sum of each block of
// input channels is scaled when there are groups, the whole sum otherwise.

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "prepack/gemm/activation_quantizers.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kChannels = 32;  // of a block
constexpr uint64_t kMaxBlockK = 128;

// Input channels of a block: the group, at most 128, halved until it divides K.
uint64_t BlockK(uint64_t group_size, uint64_t k) {
  uint64_t block_k = std::min(group_size, kMaxBlockK);
  while (k % block_k != 0) block_k /= 2;
  return block_k;
}

class Fp8W8A8Model final : public FloatModel {
 public:
  // `pack`: neighbouring input channels of one output channel, 4 or 1.
  Fp8W8A8Model(const PackedOperands& packed, const ModelInput& input, std::vector<float> x,
               std::vector<float> x_scales, uint64_t pack)
      : FloatModel(packed, input, std::move(x), SegmentOf(packed)),
        x_scales_(std::move(x_scales)),
        block_k_(BlockK(packed.group_size, packed.k)),
        pack_(pack) {
    for (size_t code = 0; code < values_.size(); ++code) {
      values_[code] = F8E4M3ToF32(static_cast<uint8_t>(code));
    }
  }

  void CopyActivations(uint64_t m, std::span<double> row) const override {
    FloatModel::CopyActivations(m, row);
    for (double& x : row) x *= static_cast<double>(x_scales_[m]);
  }
  double Activation(uint64_t m, uint64_t column) const override {
    return FloatModel::Activation(m, column) * static_cast<double>(x_scales_[m]);
  }

 private:
  static uint64_t SegmentOf(const PackedOperands& packed) {
    return packed.group_size == packed.k ? packed.k : BlockK(packed.group_size, packed.k);
  }
  uint64_t groups() const { return k() / packed().group_size; }

  float ScaleOf(uint64_t n, uint64_t in_k) const {  // [N / 32, G, 32]
    const uint64_t group = in_k / packed().group_size;
    return scales()[(n / kChannels * groups() + group) * kChannels + n % kChannels];
  }

  // A run of input channels begins with a block.
  void Decode(const ModelPiece& piece, float* w) const override {
    const uint64_t lines = pack_ * kChannels;
    uint64_t start = piece.n0 / kChannels * kChannels * k() + piece.k0 * kChannels +
                     piece.n0 % kChannels * pack_;
    for (uint64_t j = 0; j < piece.inputs; j += pack_, start += lines) {
      for (uint64_t in_pack = 0; in_pack < pack_; ++in_pack) {
        float* to = w + (j + in_pack) * kStripChannels;
        for (uint64_t i = 0; i < piece.rows; ++i) {
          to[i] = values_[Load<uint8_t>(packed().weight, start + in_pack + i * pack_)];
        }
      }
    }
  }

  void Fold(const ModelPiece& segment, const float* sums, float* results) const override {
    BlockOfFloats scale{};
    for (uint64_t i = 0; i < segment.rows; ++i) scale[i] = ScaleOf(segment.n0 + i, segment.k0);
    const bool last = segment.k0 + segment.inputs == k();
    for (uint64_t row = 0; row < m(); ++row) {
      const float* from = sums + row * kModelBlock;
      float* to = results + row * kModelBlock;
      for (uint64_t i = 0; i < segment.rows; ++i) {
        // One scale: it comes after that of the token. Groups: before.
        if (groups() == 1) {
          to[i] = from[i] * x_scales_[row] * scale[i] + Bias(segment.n0 + i);
          continue;
        }
        to[i] += from[i] * scale[i];
        if (last) to[i] = to[i] * x_scales_[row] + Bias(segment.n0 + i);
      }
    }
  }

  double WeightFactor(uint64_t n, uint64_t in_k) const override { return ScaleOf(n, in_k); }

  std::vector<float> x_scales_;  // [M]
  uint64_t block_k_;
  uint64_t pack_;
  std::array<float, 256> values_{};  // by code
};

Result<std::unique_ptr<KernelModel>> MakeFp8W8A8Model(const PackedOperands& packed,
                                                      const ModelInput& input, uint64_t pack) {
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.n % kChannels == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  const uint64_t block_k = BlockK(packed.group_size, packed.k);
  check.Rule(packed.group_size % block_k == 0, "a block of input channels must have one scale",
             packed.group_size);
  check.Rule(block_k % pack == 0, "a block must hold a multiple of 4 input channels", block_k);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight, {packed.n, packed.k});
  check.Bytes("weight_scale", packed.scale,
              {packed.n, packed.k / packed.group_size, sizeof(float)});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  Fp8Rows rows = QuantizeFp8(input.x, InputColumns(packed, input));
  std::vector<float> x(rows.codes.size());
  std::transform(rows.codes.begin(), rows.codes.end(), x.begin(), F8E4M3ToF32);
  return std::unique_ptr<KernelModel>(
      std::make_unique<Fp8W8A8Model>(packed, input, std::move(x), std::move(rows.scales), pack));
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeFp8W8A8Vnni4Model(const PackedOperands& packed,
                                                           const ModelInput& input) {
  return MakeFp8W8A8Model(packed, input, 4);
}

Result<std::unique_ptr<KernelModel>> MakeFp8W8A8PlainModel(const PackedOperands& packed,
                                                           const ModelInput& input) {
  return MakeFp8W8A8Model(packed, input, 1);
}

}  // namespace prepack
