// The two layouts whose blocks hold pairs of input channels: vllm-cpu/fp8-vnni
// (_C::fp8_scaled_mm_cpu, csrc/cpu/sgl-kernels/gemm_fp8.cpp) and vllm-cpu/bf16-vnni
// (_C::weight_packed_linear, csrc/cpu/sgl-kernels/gemm.cpp).

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

#include "prepack/base/checked.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kVnniPairChannels = 32;  // of a block; the last may have fewer
static_assert(kVnniPairChannels == kBytePairChannels);
constexpr uint64_t kBlockK = 128;  // input channels per FP8 scale

// Where element (n, k) lies, counted in elements, and how far it is to the next pair.
struct PairPlace {
  uint64_t start;
  uint64_t stride;
};
PairPlace PlaceOfPair(uint64_t channels, uint64_t inputs, uint64_t n, uint64_t k) {
  const uint64_t block = n / kVnniPairChannels;
  const uint64_t height = std::min(kVnniPairChannels, channels - kVnniPairChannels * block);
  return {
      .start = block * kVnniPairChannels * inputs + k / 2 * 2 * height + n % kVnniPairChannels * 2,
      .stride = 2 * height};
}

class Bf16VnniModel final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  void Decode(const ModelPiece& piece, float* w) const override {
    const PairPlace place = PlaceOfPair(n(), k(), piece.n0, piece.k0);
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const uint64_t start = place.start + j / 2 * place.stride + j % 2;
      for (uint64_t i = 0; i < piece.rows; ++i) {
        w[j * kStripChannels + i] = BF16ToF32(Load<uint16_t>(packed().weight, start + 2 * i));
      }
    }
  }
};

// The kernel's decoder. It is not e4m3: it treats every code as a normal number, so that zero is
// 2^-7, subnormals are wrong, and NaN is 480.
float DecodeLikeKernel(uint8_t code) {
  const float magnitude =
      std::ldexp(1.0F + static_cast<float>(code & 7) / 8.0F, (code >> 3 & 15) - 7);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

void FillUpper(const std::array<float, 256>& values, ByteWeights& weights) {
  for (size_t code = 0; code < values.size(); ++code) {
    weights.upper[code] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[code]) >> 16);
  }
}

using EightCodes [[gnu::vector_size(16)]] = uint16_t;

// The same of 16 output channels, of two input channels side by side, to two lines of numbers: of
// these the lower halves of all bits are zero.
void DecodePairsLikeKernel(const std::byte* codes, float* to) {
  constexpr uint16_t kBias = (127 - 7) << 7;
  constexpr EightCodes kZeros = {};
  for (uint64_t half = 0; half < 2; ++half, codes += sizeof(EightCodes), to += 8) {
    EightCodes pairs;
    std::memcpy(&pairs, codes, sizeof pairs);
    for (const EightCodes& own : {pairs & 0xFF, pairs >> 8}) {
      const EightCodes upper = (own & 0x80) << 8 | (((own & 0x7F) << 4) + kBias);
      const std::array both = {__builtin_shufflevector(kZeros, upper, 0, 8, 1, 9, 2, 10, 3, 11),
                               __builtin_shufflevector(kZeros, upper, 4, 12, 5, 13, 6, 14, 7, 15)};
      std::memcpy(to, both.data(), sizeof both);
      to += kStripChannels;
    }
    to -= 2 * kStripChannels;
  }
}

class Fp8VnniModel final : public FloatModel {
 public:
  Fp8VnniModel(const PackedOperands& packed, const ModelInput& input)
      : FloatModel(packed, input, {input.x.begin(), input.x.end()},
                   ScalesSums(input.m) ? kBlockK : packed.k) {
    for (size_t code = 0; code < values_.size(); ++code) {
      values_[code] = DecodeLikeKernel(static_cast<uint8_t>(code));
    }
  }

 private:
  static constexpr uint64_t kRowsByVector = 4;  // more than these are multiplied as one bf16 GEMM

  static bool ScalesSums(uint64_t m) { return m <= kRowsByVector; }

  float ScaleOf(uint64_t n, uint64_t in_k) const {
    return scales()[n / packed().block_rows * CeilDiv(k(), kBlockK) + in_k / kBlockK];
  }

  // A run has one scale: none crosses a block of kBlockK, nor a strip one of output channels.
  void Decode(const ModelPiece& piece, float* w) const override {
    static_assert(kRunInputs == kBlockK);
    const PairPlace place = PlaceOfPair(n(), k(), piece.n0, piece.k0);
    if (ScalesSums(m()) && piece.rows == kStripChannels) {
      for (uint64_t j = 0; j < piece.inputs; j += 2) {
        DecodePairsLikeKernel(&packed().weight[place.start + j / 2 * place.stride],
                              w + j * kStripChannels);
      }
      return;
    }
    // A few weights are not worth a table of all of them.
    const bool few = piece.inputs <= kFewInputs;
    const float scale = ScaleOf(piece.n0, piece.k0);
    const std::array<float, 256> table = few ? values_ : WeightsOf(scale);
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const std::byte* codes = &packed().weight[place.start + j / 2 * place.stride + j % 2];
      float* to = w + j * kStripChannels;
      for (uint64_t i = 0; i < piece.rows; ++i) {
        const float value = table[static_cast<uint8_t>(codes[2 * i])];
        to[i] = few ? Weight(value, scale) : value;
      }
    }
  }

  // All weights are of bf16, scaled or not: a code has no more than four bits of a number.
  bool DigestStrips(const ModelPiece& strips, const int16_t* factors,
                    uint32_t* digests) const override {
    const bool whole = strips.n0 % kVnniPairChannels == 0 && strips.rows % kVnniPairChannels == 0;
    if (!whole || strips.inputs % 2 != 0) return false;
    ByteWeights weights;
    std::optional<float> scale;  // that the weights are for
    for (uint64_t i = 0; i < strips.rows; i += kVnniPairChannels) {
      const float own = ScaleOf(strips.n0 + i, strips.k0);
      if (scale != own) FillUpper(WeightsOf(own), weights);
      scale = own;
      const PairPlace place = PlaceOfPair(n(), k(), strips.n0 + i, strips.k0);
      kernels().digest_byte_pairs(reinterpret_cast<const uint8_t*>(&packed().weight[place.start]),
                                  place.stride, strips.inputs / 2, weights, factors, digests + i);
    }
    return true;
  }

  // As the kernel multiplies it.
  float Weight(float value, float scale) const {
    return ScalesSums(m()) ? value : RoundByInstruction(DType::kBF16, value * scale);
  }

  std::array<float, 256> WeightsOf(float scale) const {
    std::array<float, 256> weights;
    for (size_t code = 0; code < weights.size(); ++code) {
      weights[code] = Weight(values_[code], scale);
    }
    return weights;
  }

  void Fold(const ModelPiece& segment, const float* sums, float* results) const override {
    if (!ScalesSums(m())) return FloatModel::Fold(segment, sums, results);
    BlockOfFloats scale{};
    for (uint64_t i = 0; i < segment.rows; ++i) scale[i] = ScaleOf(segment.n0 + i, segment.k0);
    for (uint64_t row = 0; row < m(); ++row) {
      float* to = results + row * kModelBlock;
      if (segment.k0 == 0) {
        for (uint64_t i = 0; i < segment.rows; ++i) to[i] = Bias(segment.n0 + i);
      }
      kernels().fuse_products(sums + row * kModelBlock, scale.data(), segment.rows, to);
    }
  }

  double WeightFactor(uint64_t n, uint64_t in_k) const override {
    return ScalesSums(m()) ? static_cast<double>(ScaleOf(n, in_k)) : 1.0;
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
  return std::unique_ptr<KernelModel>(std::make_unique<Bf16VnniModel>(packed, input));
}

Result<std::unique_ptr<KernelModel>> MakeFp8VnniModel(const PackedOperands& packed,
                                                      const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.n % kVnniPairChannels == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  check.Rule(packed.block_rows % kVnniPairChannels == 0,
             "a scale must cover a multiple of 32 output channels", packed.block_rows);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight, {packed.n, packed.k});
  check.Bytes("weight_scale", packed.scale,
              {CeilDiv(packed.n, packed.block_rows), CeilDiv(packed.k, kBlockK), sizeof(float)});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<Fp8VnniModel>(packed, input));
}

// plain/bf16 and plain/bf16-conv1d: any linear layer with bf16 weights, [N, K] or, as a Conv1D has
// them, [K, N]; sums in f32.
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
