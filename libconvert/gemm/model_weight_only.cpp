// Kernels that multiply bf16 activations with 4-bit weights rounded to bf16: zentorch/woq
// (zentorch_woq_linear) and onednn/w4a16 (brg_matmul with fpmath_mode bf16). w = (u - z) * s in
// f32, rounded to bf16 with subnormals to zero; f32 sums; the bias in f32; rounded to bf16.
// They differ in the order of the codes and in how they store zero points.

#include <array>
#include <memory>

#include "gemm/float_model.h"
#include "gemm/kernel_models.h"
#include "gemm/model_operands.h"

namespace prepack {
namespace {

class WeightOnlyModel : public FloatModel {
 public:
  using FloatModel::FloatModel;

 protected:
  // What each code of a channel stands for in one group. Zero points lie in the order of scales.
  using Table = std::array<float, 16>;
  Table TableOf(uint64_t out_n, uint64_t in_k) const {
    const uint64_t parameter = in_k / packed().group_size * n() + out_n;
    const float scale = scales()[parameter];
    const bool symmetric = packed().zero_point.empty();
    const int zero = symmetric ? 0 : ZeroPoint(parameter);
    Table table;
    for (int nibble = 0; nibble < 16; ++nibble) {
      const int value = symmetric ? SignedNibble(nibble) : nibble - zero;
      table[static_cast<size_t>(nibble)] =
          RoundByInstruction(DType::kBF16, static_cast<float>(value) * scale);
    }
    return table;
  }

 private:
  // Zero point `index` of [G, N].
  virtual int ZeroPoint(uint64_t index) const = 0;
};

// Codes [N, K], two in a byte.
class ZentorchWoqModel final : public WeightOnlyModel {
 public:
  using WeightOnlyModel::WeightOnlyModel;

 private:
  int ZeroPoint(uint64_t index) const override { return LoadS8(packed().zero_point, index); }

  void Decode(const ModelPiece& piece, float* w) const override {
    FloatLines lines;
    for (uint64_t i = 0; i < piece.rows; ++i) {
      const uint64_t start = (piece.n0 + i) * k() + piece.k0;
      Table table{};
      for (uint64_t j = 0; j < piece.inputs; ++j) {
        const uint64_t in_k = piece.k0 + j;
        if (j == 0 || in_k % packed().group_size == 0) table = TableOf(piece.n0 + i, in_k);
        const int nibble = LoadNibble(packed().weight, start + j);
        lines[i * kRunInputs + j] = table[static_cast<size_t>(nibble)];
      }
    }
    LinesToStrip(lines, piece, w);
  }
};

// Codes [K, N], two in a byte.
class OneDnnW4A16Model final : public WeightOnlyModel {
 public:
  using WeightOnlyModel::WeightOnlyModel;

 private:
  int ZeroPoint(uint64_t index) const override { return LoadNibble(packed().zero_point, index); }

  void Decode(const ModelPiece& piece, float* w) const override {
    std::array<Table, kStripChannels> tables{};
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const uint64_t in_k = piece.k0 + j;
      if (j == 0 || in_k % packed().group_size == 0) {
        for (uint64_t i = 0; i < piece.rows; ++i) tables[i] = TableOf(piece.n0 + i, in_k);
      }
      const uint64_t start = in_k * n() + piece.n0;
      for (uint64_t i = 0; i < piece.rows; ++i) {
        const int nibble = LoadNibble(packed().weight, start + i);
        w[j * kStripChannels + i] = tables[i][static_cast<size_t>(nibble)];
      }
    }
  }
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
  return std::unique_ptr<KernelModel>(std::make_unique<ZentorchWoqModel>(packed, input));
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
  return std::unique_ptr<KernelModel>(std::make_unique<OneDnnW4A16Model>(packed, input));
}

}  // namespace prepack
