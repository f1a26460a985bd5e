// vllm-cpu/int8-vnni: _C::int8_scaled_mm_with_quant (csrc/cpu/sgl-kernels/gemm_int8.cpp).
// Activations are u8 around 128; what the 128 adds is taken off by the compensation that is stored
// behind the values of each 32 channels.

#include <cmath>
#include <memory>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kInt8VnniChannels = 32;  // of a block

class Int8VnniModel final : public QuadsModel<ChannelModel> {
 public:
  using QuadsModel::QuadsModel;

 private:
  uint64_t BlockStart(uint64_t n) const {
    return n / kInt8VnniChannels * kInt8VnniChannels * (k() + sizeof(int32_t));
  }

  Quads QuadsOf(const ModelPiece& piece) const override {
    const uint64_t start = BlockStart(piece.n0) + piece.n0 % kInt8VnniChannels * 4;
    constexpr uint64_t kStride = kInt8VnniChannels * 4;
    return {.bytes = packed().weight.data() + start + piece.k0 / 4 * kStride, .stride = kStride};
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

// zentorch_dynamic_qlinear in its three forms: zentorch/da8w4, zentorch/int8, and zentorch/int8-dlp
// (int8 with is_weight_prepacked). The scale of a token is rounded to the type of the weight scales
// before it is used.
namespace {

QuantizedRows QuantizeFor(const PackedOperands& packed, const ModelInput& input) {
  QuantizedRows rows = QuantizeZentorch(input.x, InputColumns(packed, input));
  for (float& scale : rows.scales) scale = RoundTo(packed.scale_dtype, scale);
  return rows;
}

class ZentorchDa8W4Model final : public RowsModel<IntegerModel> {
 public:
  ZentorchDa8W4Model(const PackedOperands& packed, const ModelInput& input)
      : RowsModel(packed, input, QuantizeFor(packed, input), packed.group_size) {}

 private:
  // K and the group size are multiples of four.
  void GatherRows(const ModelPiece& piece, Rows& rows) const override {
    for (uint64_t i = 0; i < piece.rows; ++i) {
      const std::byte* bytes = packed().weight.data() + ((piece.n0 + i) * k() + piece.k0) / 2;
      // Fours of bits with a sign, plus 8.
      std::array<uint8_t, kRunInputs / 2> moved;
      for (uint64_t j = 0; j < piece.inputs / 2; ++j) {
        moved[j] = std::to_integer<uint8_t>(bytes[j] ^ std::byte{0x88});
      }
      kernels().split_small_fields(moved.data(), piece.inputs / 2, 4, 8, &rows[i * kRunInputs]);
    }
  }

  void Fold(const ModelPiece& segment, const int32_t* sums, float* results) const override {
    FoldGroup(segment, sums, results);
  }

  double WeightFactor(uint64_t n, uint64_t in_k) const override { return GroupScale(n, in_k); }
};

// One scale per channel; y = (d * s_w) * s_a + bias.
class ZentorchInt8Model : public ChannelModel {
 public:
  ZentorchInt8Model(const PackedOperands& packed, const ModelInput& input, QuantizedRows x)
      : ChannelModel(packed, input, std::move(x)) {}

 protected:
  float Scaled(uint64_t m, uint64_t n, int32_t sum) const {
    return static_cast<float>(sum) * scales()[n] * token_scales()[m] + Bias(n);
  }

 private:
  void Decode(const ModelPiece& piece, int16_t* w) const override {
    DecodeRowsOfBytes(packed(), piece, w);
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors,
                   uint32_t* digests) const override {
    DigestRowsOfBytes(packed(), strip, factors, digests);
    return true;
  }

  float Finish(uint64_t m, uint64_t n, int32_t sum) const override { return Scaled(m, n, sum); }
};

// Activations are moved to u8 by 128 for the instruction; what that adds is taken off by the
// compensation that is stored behind all panels.
constexpr int kShift = 128;

struct DlpShape {
  uint64_t n16;  // N rounded up to 16
  uint64_t k4;   // K rounded up to 4
};

DlpShape PadDlp(const PackedOperands& packed) {
  return {.n16 = CeilDiv(packed.n, 16) * 16, .k4 = CeilDiv(packed.k, 4) * 4};
}

class ZentorchInt8DlpModel final : public QuadsModel<ZentorchInt8Model> {
 public:
  ZentorchInt8DlpModel(const PackedOperands& packed, const ModelInput& input)
      : QuadsModel(packed, input, Shifted(QuantizeFor(packed, input), kShift)),
        shape_(PadDlp(packed)) {}

 private:
  struct Panel {
    uint64_t start;  // its first channel
    uint64_t width;
  };

  // Panels of 64 channels while there are as many; then the remaining full sixteens; then the rest.
  Panel PanelOf(uint64_t n) const {
    const uint64_t channels = IntegerModel::n();
    const uint64_t sixty_fours = channels / 64 * 64;
    const uint64_t sixteens = channels / 16 * 16;
    if (n < sixty_fours) return {.start = n / 64 * 64, .width = 64};
    if (n < sixteens) return {.start = sixty_fours, .width = sixteens - sixty_fours};
    return {.start = sixteens, .width = 16};
  }

  // A strip lies in one panel: both begin at multiples of 16.
  Quads QuadsOf(const ModelPiece& piece) const override {
    const Panel panel = PanelOf(piece.n0);
    const uint64_t start = panel.start * shape_.k4 + (piece.n0 - panel.start) * 4;
    const uint64_t stride = panel.width * 4;
    return {.bytes = packed().weight.data() + start + piece.k0 / 4 * stride, .stride = stride};
  }

  float Finish(uint64_t m, uint64_t n, int32_t sum) const override {
    const auto compensation = Load<int32_t>(packed().weight.subspan(shape_.n16 * shape_.k4), n);
    return Scaled(m, n, WrappingAdd(sum, WrappingMul(-1, compensation)));
  }

  DlpShape shape_;
};

// What the three have in common.
void CheckZentorch(const PackedOperands& packed, OperandCheck& check) {
  check.Type("weight_scale", packed.scale_dtype, {DType::kBF16, DType::kF32});
  check.Bytes("weight_scale", packed.scale,
              {packed.k / packed.group_size, packed.n, DTypeBits(packed.scale_dtype) / 8});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kBF16, DType::kF32});
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeZentorchDa8W4Model(const PackedOperands& packed,
                                                            const ModelInput& input) {
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.k % 8 == 0, "K must be a multiple of 8", packed.k);
  check.Rule(packed.group_size % 4 == 0, "the group size must be a multiple of 4",
             packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Bytes("weight", packed.weight, {packed.n, packed.k / 2});
  CheckZentorch(packed, check);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<ZentorchDa8W4Model>(packed, input));
}

Result<std::unique_ptr<KernelModel>> MakeZentorchInt8Model(const PackedOperands& packed,
                                                           const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.group_size == packed.k, "a channel has one scale", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16, DType::kF32});
  check.Bytes("weight", packed.weight, {packed.n, packed.k});
  CheckZentorch(packed, check);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(
      std::make_unique<ZentorchInt8Model>(packed, input, QuantizeFor(packed, input)));
}

Result<std::unique_ptr<KernelModel>> MakeZentorchInt8DlpModel(const PackedOperands& packed,
                                                              const ModelInput& input) {
  const DlpShape shape = PadDlp(packed);
  OperandCheck check;
  check.Rule(packed.group_size == packed.k, "a channel has one scale", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16, DType::kF32});
  check.Bytes("weight", packed.weight, {shape.n16, shape.k4 + sizeof(int32_t)});
  CheckZentorch(packed, check);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<ZentorchInt8DlpModel>(packed, input));
}

}  // namespace prepack
