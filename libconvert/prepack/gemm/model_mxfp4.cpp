// vllm-cpu/mxfp4: one layer of one expert as _C::fused_experts_cpu multiplies it
// (csrc/cpu/sgl-kernels/moe.cpp). The op takes the tokens of an expert 32 at a time. For up to four
// it multiplies vectors, and sums begin with the bias; for more it multiplies matrices, and adds
// the bias in the end. Both sum in f32 by VDPBF16PS, which takes the odd of two input channels
// first, and round the results to bf16. With AMX the sums of matrices run in another order.

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kBlockChannels = 32;
constexpr uint64_t kGroupInputs = 32;

// The numbers of the codes as bits of bf16.
constexpr std::array<int, 16> kNumbers = [] {
  std::array<int, 16> numbers{};
  for (size_t code = 0; code < numbers.size(); ++code) {
    numbers[code] = F32ToBF16(F4E2M1ToF32(static_cast<uint8_t>(code)));
  }
  return numbers;
}();

// Input channels in the order in which they are added: 1, 0, 3, 2, …
template <typename T>
void SwapPairs(std::span<T> row) {
  for (size_t i = 0; i + 1 < row.size(); i += 2) std::swap(row[i], row[i + 1]);
}

std::vector<float> Swapped(const PackedOperands& packed, const ModelInput& input) {
  const uint64_t columns = InputColumns(packed, input);
  const uint64_t inputs = input.slab ? input.slab->inputs : columns;
  std::vector<float> x(input.x.begin(), input.x.end());
  for (uint64_t m = 0; m < input.m; ++m) SwapPairs(std::span(x).subspan(m * columns, inputs));
  return x;
}

class Mxfp4Model final : public FloatModel {
 public:
  Mxfp4Model(const PackedOperands& packed, const ModelInput& input)
      : FloatModel(packed, input, Swapped(packed, input), packed.k),
        inputs_(input.slab ? input.slab->inputs : packed.k) {}

  void CopyActivations(uint64_t row, std::span<double> x) const override {
    FloatModel::CopyActivations(row, x);
    SwapPairs(x.first(inputs_));
  }

  double Activation(uint64_t row, uint64_t column) const override {
    return FloatModel::Activation(row, column ^ 1U);  // the number of inputs is even
  }

  Status RunAndDigest(uint64_t n0, const DigestFactors& factors, std::span<float> y,
                      std::span<uint32_t> digests) const override {
    DigestFactors swapped = factors;
    SwapPairs(std::span(swapped.wide).first(inputs_));
    return FloatModel::RunAndDigest(n0, swapped, y, digests);
  }

  void Weights(uint64_t n0, std::span<double> w) const override {
    FloatModel::Weights(n0, w);
    SwapPairs(w);  // rows are even
  }

 private:
  static constexpr uint64_t kTokensAtATime = 32;
  static constexpr uint64_t kTokensByVector = 4;

  bool ByVector(uint64_t row) const {
    return m() - row / kTokensAtATime * kTokensAtATime <= kTokensByVector;
  }

  void Decode(const ModelPiece& piece, float* w) const override {
    for (uint64_t j = 0; j < piece.inputs;) {
      const uint64_t in_k = piece.k0 + j;
      const uint64_t count = std::min(kGroupInputs - in_k % kGroupInputs, piece.inputs - j);
      DecodeGroup({.n0 = piece.n0, .rows = piece.rows, .k0 = in_k, .inputs = count},
                  w + j * kStripChannels);
      j += count;
    }
  }

  // Of input channels of one group. The kernel adds the exponent of the scale to that of the
  // weight. A weight of zero has none: it keeps its sign alone, as it does where the source is
  // decoded.
  void DecodeGroup(const ModelPiece& piece, float* w) const {
    const uint64_t block = piece.n0 / kBlockChannels;
    const uint64_t half = piece.n0 % kBlockChannels / kStripChannels;
    const uint64_t group = block * (k() / kGroupInputs) + piece.k0 / kGroupInputs;
    std::array<std::array<int, 2>, kStripChannels> added{};  // to a zero, and to others
    for (uint64_t i = 0; i < piece.rows; ++i) {
      const uint64_t scale = group * kBlockChannels + half * kStripChannels + i;
      added[i][1] = (Load<uint8_t>(packed().scale, scale) - 127) * 128;
    }
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const uint64_t in_k = piece.k0 + j;
      const uint64_t pair = block * (k() / 2) + in_k / 2;
      const std::byte* bytes = &packed().weight[pair * kBlockChannels + in_k % 2];
      float* to = w + (j ^ 1U) * kStripChannels;
      for (uint64_t i = 0; i < piece.rows; ++i) {
        const unsigned code = std::to_integer<unsigned>(bytes[2 * i]) >> 4 * half & 15U;
        to[i] = BF16ToF32(static_cast<uint16_t>(kNumbers[code] + added[i][code % 8 == 0 ? 0 : 1]));
      }
    }
  }

  void Begin(const ModelPiece& segment, float* sums) const override {
    for (uint64_t row = 0; row < m(); ++row) {
      if (!ByVector(row)) continue;
      for (uint64_t i = 0; i < segment.rows; ++i) {
        sums[row * kModelBlock + i] = Bias(segment.n0 + i);
      }
    }
  }

  void Fold(const ModelPiece& segment, const float* sums, float* results) const override {
    for (uint64_t row = 0; row < m(); ++row) {
      for (uint64_t i = 0; i < segment.rows; ++i) {
        const uint64_t at = row * kModelBlock + i;
        results[at] = ByVector(row) ? sums[at] : sums[at] + Bias(segment.n0 + i);
      }
    }
  }

  uint64_t inputs_;  // whose x is given
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeMxfp4Model(const PackedOperands& packed,
                                                    const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.n % kBlockChannels == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % kGroupInputs == 0, "K must be a multiple of 32", packed.k);
  check.Rule(packed.group_size == kGroupInputs, "a scale must cover 32 input channels",
             packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kU8});
  check.Bytes("weight", packed.weight, {packed.n, packed.k / 2});
  check.Bytes("weight_scale", packed.scale, {packed.n, packed.k / kGroupInputs});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Mxfp4Model>(packed, input));
}

}  // namespace prepack
