// vllm-arm/int4-w4a8: aten::_dyn_quant_matmul_4bit with KleidiAI's kernels for DOTPROD and I8MM
// (kai_matmul_clamp_{f32,bf16}_qai8dxp…_qsi4c32p… and …_qsi4cxp…), which compute the same. They sum
// x · w as x was quantized, with the zero point of the token, and take off what that adds by the
// sum of the weights of each channel, which is stored behind the codes. 16-bit activations are
// widened to f32 first, but for bf16 and one scale per channel, for which kernels of their own
// quantize alike.

#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "prepack/base/checked.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kPanelChannels = 8;
constexpr uint64_t kBytesOfRun = 8;
constexpr uint64_t kPanelTailColumn = 4 * kPanelChannels;  // bytes

// Where things are in the bytes of eight output channels.
struct KleidiPanel {
  explicit KleidiPanel(const PackedOperands& packed)
      : groups(packed.k / packed.group_size),
        codes(CeilDiv(groups == 1 ? packed.k : packed.group_size, 32) * 16 * kPanelChannels),
        group_bytes(codes + (groups == 1 ? 0 : 2 * kPanelChannels)),
        bytes(groups * group_bytes + (groups == 1 ? 3 : 2) * kPanelTailColumn) {}

  uint64_t groups;
  uint64_t codes;        // bytes of the codes of a group
  uint64_t group_bytes;  // from one group to the next
  uint64_t bytes;        // from one panel to the next
};

class KleidiAiModel final : public IntegerModel {
 public:
  KleidiAiModel(const PackedOperands& packed, const ModelInput& input)
      : IntegerModel(packed, input, QuantizeKleidiAi(input.x, InputColumns(packed, input)),
                     packed.group_size),
        panel_(packed) {}

 private:
  static constexpr uint64_t kQuadStride = 4 * kStripChannels;
  using Codes = std::array<std::byte, kRunInputs / 4 * kQuadStride>;

  uint64_t PanelStart(uint64_t n) const { return n / kPanelChannels * panel_.bytes; }

  // Four input channels from k on, which lie side by side.
  uint32_t FourCodes(uint64_t n, uint64_t in_k) const {
    const uint64_t in_group = in_k % packed().group_size;
    const uint64_t run = in_group / 32 * 2 + in_group % 16 / kBytesOfRun;
    const uint64_t at = PanelStart(n) + in_k / packed().group_size * panel_.group_bytes +
                        (run * kPanelChannels + n % kPanelChannels) * kBytesOfRun +
                        in_group % kBytesOfRun;
    uint32_t four = 0;
    std::memcpy(&four, packed().weight.data() + at, sizeof four);
    const uint32_t nibbles = (in_group % 32 < 16 ? four : four >> 4) & 0x0F0F0F0F;
    // From four bits of two's complement to eight; no byte borrows from the next.
    return (((nibbles ^ 0x08080808) | 0x80808080) - 0x08080808) ^ 0x80808080;
  }

  Quads SplitCodes(const ModelPiece& piece, Codes& codes) const {
    std::byte* to = codes.data();
    for (uint64_t j = 0; j < piece.inputs; j += 4, to += kQuadStride) {
      for (uint64_t i = 0; i < piece.rows; ++i) {
        const uint32_t four = FourCodes(piece.n0 + i, piece.k0 + j);
        std::memcpy(to + 4 * i, &four, sizeof four);
      }
    }
    return {.bytes = codes.data(), .stride = kQuadStride};
  }

  void Decode(const ModelPiece& piece, int16_t* w) const override {
    Codes codes{};
    DecodeQuads(SplitCodes(piece, codes), piece, w);
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors,
                   uint32_t* digests) const override {
    Codes codes;
    return DigestQuads(SplitCodes(strip, codes), strip, factors, digests);
  }

  // Number n of column `column` behind the codes.
  template <typename T>
  T Tail(uint64_t n, uint64_t column) const {
    const uint64_t at = PanelStart(n) + panel_.groups * panel_.group_bytes +
                        column * kPanelTailColumn + n % kPanelChannels * sizeof(T);
    return Load<T>(packed().weight.subspan(at), 0);
  }

  float GroupScaleOf(uint64_t n, uint64_t in_k) const {
    const uint64_t at = PanelStart(n) + in_k / packed().group_size * panel_.group_bytes +
                        panel_.codes + n % kPanelChannels * sizeof(uint16_t);
    return BF16ToF32(Load<uint16_t>(packed().weight.subspan(at), 0));
  }

  void Fold(const ModelPiece& segment, const int32_t* sums, float* results) const override {
    if (panel_.groups == 1) return FoldChannels(segment, sums, results);
    BlockOfFloats scale{};
    for (uint64_t i = 0; i < segment.rows; ++i) {
      scale[i] = GroupScaleOf(segment.n0 + i, segment.k0);
    }
    BlockOfFloats of_group{};
    for (uint64_t row = 0; row < m(); ++row) {
      float* to = results + row * kModelBlock;
      for (uint64_t i = 0; i < segment.rows; ++i) {
        of_group[i] = static_cast<float>(sums[row * kModelBlock + i]);
      }
      kernels().fuse_products(of_group.data(), scale.data(), segment.rows, to);
    }
    if (segment.k0 + segment.inputs == k()) FinishGroups(segment, results);
  }

  void FinishGroups(const ModelPiece& segment, float* results) const {
    for (uint64_t row = 0; row < m(); ++row) {
      float* to = results + row * kModelBlock;
      const auto shift = static_cast<float>(-token_zeros()[row]);
      for (uint64_t i = 0; i < segment.rows; ++i) {
        const uint64_t n = segment.n0 + i;
        const float sum = std::fma(Tail<float>(n, 0), shift, to[i]);
        to[i] = sum * token_scales()[row] + Tail<float>(n, 1);
      }
    }
  }

  // Codes count sixteen times here: the kernel leaves them in the upper halves of bytes.
  void FoldChannels(const ModelPiece& segment, const int32_t* sums, float* results) const {
    for (uint64_t row = 0; row < m(); ++row) {
      const auto shift = static_cast<int32_t>(-token_zeros()[row]);
      for (uint64_t i = 0; i < segment.rows; ++i) {
        const uint64_t n = segment.n0 + i;
        const uint64_t at = row * kModelBlock + i;
        const int32_t sum =
            WrappingAdd(WrappingMul(16, sums[at]), WrappingMul(Tail<int32_t>(n, 0), shift));
        const float scale = Tail<float>(n, 1) * token_scales()[row];
        results[at] = static_cast<float>(sum) * scale + Tail<float>(n, 2);
      }
    }
  }

  void RoundAll(DType dtype, std::span<const float> values, float* y) const override {
    for (size_t i = 0; i < values.size(); ++i) y[i] = RoundTo(dtype, values[i]);
  }

  double WeightFactor(uint64_t n, uint64_t in_k) const override {
    if (panel_.groups == 1) return static_cast<double>(Tail<float>(n, 1)) * 16;
    return static_cast<double>(GroupScaleOf(n, in_k));
  }

  KleidiPanel panel_;
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeKleidiAiModel(const PackedOperands& packed,
                                                       const ModelInput& input) {
  OperandCheck check;
  check.Groups(packed);
  check.Rule(packed.k % 2 == 0, "K must be even", packed.k);
  check.Rule(packed.group_size == packed.k || packed.group_size % 32 == 0,
             "the group size must be a multiple of 32", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16, DType::kF16, DType::kF32});
  if (check.status().ok()) {
    check.Bytes("weight", packed.weight,
                {CeilDiv(packed.n, kPanelChannels), KleidiPanel(packed).bytes});
  }
  check.Absent("weight_scale", packed.scale);
  check.Absent("weight_zero_point", packed.zero_point);
  check.Bias(packed, {DType::kF32});
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<KleidiAiModel>(packed, input));
}

}  // namespace prepack
