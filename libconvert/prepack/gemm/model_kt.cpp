// kt/amxint8: kt-kernel's AMXInt8_MOE (operators/amx/la/amx_kernels.hpp, GemmKernel224Int8), one of
// the three linear layers of an expert. Activations become s8 per token, symmetric; sums are exact.
// This is the kernel for CPUs without AMX, which AMX builds use for short inputs, too. It
// multiplies |x| with the weight times the sign of x, in eight bits, where -(-128) is -128.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

namespace prepack {
namespace {

constexpr uint64_t kKtTileInputs = 64;
constexpr uint64_t kKtTileRows = 32;

class KtAmxInt8Model final : public ChannelModel {
 public:
  KtAmxInt8Model(const PackedOperands& packed, const ModelInput& input)
      : ChannelModel(packed, input, QuantizeKt(input.x, InputColumns(packed, input))),
        slab_(input.slab.value_or(InputSlab{.k0 = 0, .inputs = packed.k})) {
    for (uint64_t n = 0; n < packed.n; ++n) FindLeast(n);
  }

 private:
  using Place = std::pair<uint64_t, uint64_t>;  // n, k

  // The codes of -128 of a channel.
  void FindLeast(uint64_t n) {
    for (uint64_t in = 0; in < k(); ++in) {
      const uint64_t tile = in / kKtTileInputs * kKtTileInputs;
      const std::byte* half = HalfTile(n / 16 * 16, tile);
      if (half[(in - tile) / 4 * 64 + n % 16 * 4 + in % 4] == std::byte{0x80}) {
        least_.emplace_back(n, in);
      }
    }
  }

  // The first byte of 16 channels (from n on) in the tile that begins at input channel `first`.
  const std::byte* HalfTile(uint64_t n, uint64_t first) const {
    constexpr uint64_t kRows = 64;
    constexpr uint64_t kInputs = 3584;
    const uint64_t row_block = n / kRows;
    const uint64_t rows_left = IntegerModel::n() - row_block * kRows;
    const uint64_t rows = rows_left < kRows ? rows_left : kRows;
    const uint64_t input_block = first / kInputs;
    const uint64_t inputs_left = k() - input_block * kInputs;
    const uint64_t inputs = inputs_left < kInputs ? inputs_left : kInputs;
    const uint64_t tile =
        n % kRows / kKtTileRows * (inputs / kKtTileInputs) + first % kInputs / kKtTileInputs;
    return packed().weight.data() + row_block * kRows * k() + input_block * kInputs * rows +
           tile * kKtTileRows * kKtTileInputs + n % kKtTileRows * kKtTileInputs;
  }

  void Decode(const ModelPiece& piece, int16_t* w) const override {
    static_assert(kStripChannels == 16 && kRunInputs % kKtTileInputs == 0);
    for (uint64_t j = 0; j < piece.inputs; j += kKtTileInputs) {
      const ModelPiece half = HalfOf(piece, j);
      DecodeQuads(QuadsOf(half), half, w + j * kStripChannels);
    }
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors,
                   uint32_t* digests) const override {
    for (uint64_t j = 0; j < strip.inputs; j += kKtTileInputs) {
      const ModelPiece half = HalfOf(strip, j);
      if (!DigestQuads(QuadsOf(half), half, factors + j, digests)) return false;
    }
    return true;
  }

  // What lies in one tile, from input channel j of the piece on.
  static ModelPiece HalfOf(const ModelPiece& piece, uint64_t j) {
    return {.n0 = piece.n0,
            .rows = piece.rows,
            .k0 = piece.k0 + j,
            .inputs = std::min(kKtTileInputs, piece.inputs - j)};
  }

  Quads QuadsOf(const ModelPiece& half) const {
    constexpr uint64_t kStride = 4 * kStripChannels;
    return {.bytes = HalfTile(half.n0, half.k0) + half.k0 % kKtTileInputs / 4 * kStride,
            .stride = kStride};
  }

  float Finish(uint64_t m, uint64_t n, int32_t sum) const override {
    auto place = std::ranges::lower_bound(least_, n, {}, &Place::first);
    for (; place != least_.end() && place->first == n; ++place) {
      const uint64_t in = place->second;
      if (in < slab_.k0 || in - slab_.k0 >= slab_.inputs) continue;  // x is zero there
      const int32_t x = values()[m * columns() + in - slab_.k0];
      if (x < 0) sum = WrappingAdd(sum, 256 * x);
    }
    return token_scales()[m] * scales()[n] * static_cast<float>(sum);
  }

  InputSlab slab_;
  std::vector<Place> least_;
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeKtAmxInt8Model(const PackedOperands& packed,
                                                        const ModelInput& input) {
  OperandCheck check;
  check.Rule(packed.n % kKtTileRows == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % kKtTileInputs == 0, "K must be a multiple of 64", packed.k);
  check.Rule(packed.group_size == packed.k, "a channel has one scale", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight, {packed.n, packed.k});
  check.Bytes("weight_scale", packed.scale, {packed.n, sizeof(float)});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Absent("bias", packed.bias);
  if (!check.status().ok()) return check.status();
  return std::unique_ptr<KernelModel>(std::make_unique<KtAmxInt8Model>(packed, input));
}

}  // namespace prepack
