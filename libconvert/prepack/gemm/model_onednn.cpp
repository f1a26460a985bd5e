// onednn/w4a8: dnnl::matmul of s8 activations (one f32 scale per token) with s4 or u4 weights (f32
// scales and u4 zero points per group). The activations are those of the dynamic symmetric
// quantizer that vLLM has for oneDNN. The group sums are exact; oneDNN does not say in which order
// it scales them, here it is as in zentorch's kernel: (d * s_a) * s_w, groups ascending.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>

#include "prepack/base/checked.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

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

// onednn/w8a8 and vllm-cpu/int8-plain: vLLM's handler of a oneDNN int8 matmul
// (csrc/cpu/dnnl_helper.cpp, dnnl_kernels.cpp). Three forms of the weights give the same sums:
// oneDNN's BA16a64b4a with compensations, plain [K, N], and plain [N, K]. The first two are told
// apart by their size: blocks are padded and followed by sums, so they are always larger.
namespace {

bool IsStatic(ActivationQuantizer scheme) {
  return scheme == ActivationQuantizer::kStaticSymmetric ||
         scheme == ActivationQuantizer::kStaticAsymmetric;
}

QuantizedRows QuantizeByScheme(const PackedOperands& packed, const ModelInput& input,
                               QuantizerCpu cpu) {
  const uint64_t columns = InputColumns(packed, input);
  switch (packed.activations) {
    case ActivationQuantizer::kDynamicSymmetric:
      return QuantizeDynamic(input.x, columns, cpu);
    case ActivationQuantizer::kDynamicAsymmetric:
      return QuantizeDynamicAsymmetric(input.x, columns, cpu);
    case ActivationQuantizer::kStaticSymmetric:
      return QuantizeStatic(input.x, columns, packed.input_scale, 0, cpu);
    case ActivationQuantizer::kStaticAsymmetric:
      return QuantizeStatic(input.x, columns, packed.input_scale, packed.input_zero_point, cpu);
  }
  return {};
}

// The part after the integer sums. With static activations the sums come without the zero point;
// with dynamic ones it is taken off here, by means of weight_sum.
class OneDnnW8A8Model : public ChannelModel {
 protected:
  // `shift`: what the form of the weights adds to the quantized activations.
  OneDnnW8A8Model(const PackedOperands& packed, const ModelInput& input, int shift,
                  QuantizerCpu cpu = QuantizerCpu::kX86)
      : ChannelModel(packed, input, Shifted(QuantizeByScheme(packed, input, cpu), shift)),
        shift_(shift) {}

 private:
  // Takes off what `shift` adds to the sum of channel n, and a static zero point.
  virtual int32_t Correct(uint64_t n, int32_t sum) const = 0;

  float Finish(uint64_t m, uint64_t n, int32_t exact) const override {
    const auto sum = static_cast<float>(Correct(n, exact));
    const float token_scale = token_scales()[m];
    if (IsStatic(packed().activations)) return sum * (token_scale * scales()[n]) + Bias(n);
    const float scaled = sum * scales()[n];
    if (packed().activations == ActivationQuantizer::kDynamicAsymmetric) {
      const auto zero_point = static_cast<float>(token_zeros()[m] - shift_);
      const auto weight_sum = Load<float>(packed().weight_sum, n);
      return scaled * token_scale - weight_sum * (token_scale * zero_point) + Bias(n);
    }
    return has_bias() ? std::fma(scaled, token_scale, Bias(n)) : scaled * token_scale;
  }

  int shift_;
};

// Weights without compensation: a static zero point is taken off the activations instead.
class PlainModel : public OneDnnW8A8Model {
 protected:
  PlainModel(const PackedOperands& packed, const ModelInput& input,
             QuantizerCpu cpu = QuantizerCpu::kX86)
      : OneDnnW8A8Model(packed, input,
                        packed.activations == ActivationQuantizer::kStaticAsymmetric
                            ? -packed.input_zero_point
                            : 0,
                        cpu) {}

 private:
  int32_t Correct(uint64_t /*n*/, int32_t sum) const override { return sum; }
};

// Weights [N, K].
class PlainRowsModel final : public PlainModel {
 public:
  PlainRowsModel(const PackedOperands& packed, const ModelInput& input, QuantizerCpu cpu)
      : PlainModel(packed, input, cpu) {}

 private:
  void Decode(const ModelPiece& piece, int16_t* w) const override {
    DecodeRowsOfBytes(packed(), piece, w);
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors,
                   uint32_t* digests) const override {
    DigestRowsOfBytes(packed(), strip, factors, digests);
    return true;
  }
};

// Weights [K, N].
class PlainColumnsModel final : public PlainModel {
 public:
  PlainColumnsModel(const PackedOperands& packed, const ModelInput& input)
      : PlainModel(packed, input) {}

 private:
  void Decode(const ModelPiece& piece, int16_t* w) const override {
    for (uint64_t j = 0; j < piece.inputs; ++j) {
      const auto* line = reinterpret_cast<const int8_t*>(packed().weight.data()) +
                         (piece.k0 + j) * packed().n + piece.n0;
      int16_t* to = w + j / 2 * 2 * kStripChannels + j % 2;
      for (uint64_t i = 0; i < piece.rows; ++i) to[2 * i] = Widened(line[i]);
    }
  }
};

constexpr uint64_t kTile = 64;  // channels and inputs of a block of BA16a64b4a

uint64_t Padded(uint64_t size) {
  return CeilDiv(size, kTile) * kTile;
}

// BA16a64b4a, then -128 times the sum of each channel, which takes off that the instruction wants
// activations as u8; then, for a static zero point, -1 times the same sum.
class BlockedModel final : public QuadsModel<OneDnnW8A8Model> {
 public:
  BlockedModel(const PackedOperands& packed, const ModelInput& input)
      : QuadsModel(packed, input, /*shift=*/128) {}

 private:
  int32_t Correct(uint64_t n, int32_t sum) const override {
    const std::span<const std::byte> compensation =
        packed().weight.subspan(Padded(IntegerModel::n()) * Padded(k()));
    int32_t corrected = WrappingAdd(sum, Load<int32_t>(compensation, n));
    if (packed().activations == ActivationQuantizer::kStaticAsymmetric) {
      const auto minus_sum = Load<int32_t>(compensation, Padded(IntegerModel::n()) + n);
      corrected = WrappingAdd(corrected, WrappingMul(packed().input_zero_point, minus_sum));
    }
    return corrected;
  }

  // A strip lies in one row of tiles; each tile has kTile / 4 lines of fours.
  Quads QuadsOf(const ModelPiece& piece) const override {
    const uint64_t start = piece.n0 / kTile * kTile * Padded(k()) + piece.n0 % kTile * 4;
    constexpr uint64_t kStride = kTile * 4;
    return {.bytes = packed().weight.data() + start + piece.k0 / 4 * kStride, .stride = kStride};
  }
};

// All but the weights.
void CheckW8A8(const PackedOperands& packed, OperandCheck& check, DType output) {
  check.Rule(packed.group_size == packed.k, "a channel has one scale", packed.group_size);
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight_scale", packed.scale, {packed.n, sizeof(float)});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {output});
  if (!packed.weight_sum.empty() || packed.activations == ActivationQuantizer::kDynamicAsymmetric) {
    check.Bytes("weight_sum", packed.weight_sum, {packed.n, sizeof(float)});
  }
  if (IsStatic(packed.activations)) {
    check.Rule(std::isfinite(packed.input_scale) && packed.input_scale > 0,
               "the scale of static activations must be a number above 0",
               fmt::format("{}", packed.input_scale));
    check.Rule(packed.input_zero_point >= -128 && packed.input_zero_point <= 127,
               "the zero point of static activations must fit in 8 bits",
               fmt::format("{}", packed.input_zero_point));
  }
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeOneDnnW8A8Model(const PackedOperands& packed,
                                                         const ModelInput& input) {
  const bool plain = packed.weight.size() == packed.n * packed.k;
  OperandCheck check;
  if (!plain) {
    const uint64_t sums = packed.activations == ActivationQuantizer::kStaticAsymmetric ? 2 : 1;
    check.Bytes("weight", packed.weight,
                {Padded(packed.n), Padded(packed.k) + sums * sizeof(int32_t)});
  }
  CheckW8A8(packed, check, input.dtype);
  if (!check.status().ok()) return check.status();
  if (!plain) {
    return std::unique_ptr<KernelModel>(std::make_unique<BlockedModel>(packed, input));
  }
  return std::unique_ptr<KernelModel>(std::make_unique<PlainColumnsModel>(packed, input));
}

namespace {

Result<std::unique_ptr<KernelModel>> MakePlainRows(const PackedOperands& packed,
                                                   const ModelInput& input, QuantizerCpu cpu) {
  OperandCheck check;
  check.Bytes("weight", packed.weight, {packed.n, packed.k});
  CheckW8A8(packed, check, input.dtype);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<PlainRowsModel>(packed, input, cpu));
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeVllmInt8PlainModel(const PackedOperands& packed,
                                                            const ModelInput& input) {
  return MakePlainRows(packed, input, QuantizerCpu::kX86);
}

Result<std::unique_ptr<KernelModel>> MakeVllmArmInt8PlainModel(const PackedOperands& packed,
                                                               const ModelInput& input) {
  return MakePlainRows(packed, input, QuantizerCpu::kArm);
}

}  // namespace prepack
