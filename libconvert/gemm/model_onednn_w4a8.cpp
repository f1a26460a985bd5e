// onednn/w4a8: dnnl::matmul of s8 activations (one f32 scale per token) with s4 or u4 weights (f32
// scales and u4 zero points per group). The activations are those of the dynamic symmetric
// quantizer that vLLM has for oneDNN. The group sums are exact; oneDNN does not say in which order
// it scales them, here it is as in zentorch's kernel: (d * s_a) * s_w, groups ascending.

#include <array>
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
  void Decode(const ModelPiece& piece, int16_t* w) const override {
    const uint64_t parameter = piece.k0 / packed().group_size * n() + piece.n0;
    std::array<int, kStripChannels> zeros{};
    for (uint64_t i = 0; i < piece.rows && !packed().zero_point.empty(); ++i) {
      zeros[i] = LoadNibble(packed().zero_point, parameter + i);
    }
    // Without zero points, nibbles are two's complement; see SignedNibble.
    const int flip = packed().zero_point.empty() ? 8 : 0;
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const uint64_t start = ((piece.k0 + j) * n() + piece.n0) / 2;  // both are even
      const uint64_t word = LoadNibbles(packed().weight, start, piece.rows);
      int16_t* to = w + j / 2 * 2 * kStripChannels + j % 2;
      for (uint64_t i = 0; i < kStripChannels; ++i) {
        const int nibble = static_cast<int>(word >> (4 * i) & 15U);
        to[2 * i] = static_cast<int16_t>((nibble ^ flip) - flip - zeros[i]);
      }
    }
  }

  void Fold(const ModelPiece& segment, const int32_t* sums, float* results) const override {
    FoldGroup(segment, sums, results);
  }

  double WeightFactor(uint64_t n, uint64_t in_k) const override { return GroupScale(n, in_k); }
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
      packed, input, QuantizeDynamic(input.x, InputColumns(packed, input)), packed.group_size));
}

}  // namespace prepack
