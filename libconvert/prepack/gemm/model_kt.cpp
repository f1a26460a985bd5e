// kt/amxint8 and kt/amxint4: kt-kernel's AMXInt8_MOE and AMXInt4_MOE (operators/amx/la/
// amx_kernels.hpp, GemmKernel224Int8 and GemmKernel224Int4), one of the three linear layers of an
// expert. Activations become s8 per token, symmetric; sums are exact. These are the kernels for
// CPUs without AMX, which AMX builds use for short inputs, too. They multiply |x| with the weight
// times the sign of x, in eight bits, where -(-128) is -128. Codes of 4 bits count sixteen times:
// the kernel leaves them in the upper halves of bytes.

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

constexpr uint64_t kKtTileRows = 32;
constexpr uint64_t kKtRunBytes = 64;  // of an output channel in a tile
constexpr uint64_t kKtTileBytes = kKtTileRows * kKtRunBytes;
constexpr uint64_t kKtQuadStride = 4 * kStripChannels;

class KtModel : public ChannelModel {
 public:
  // Weights of which a tile has so many input channels, a block so many output channels.
  KtModel(const PackedOperands& packed, const ModelInput& input, uint64_t tile_inputs,
          uint64_t block_rows)
      : ChannelModel(packed, input, QuantizeKt(input.x, InputColumns(packed, input))),
        tile_inputs_(tile_inputs),
        block_rows_(block_rows),
        slab_(input.slab.value_or(InputSlab{.k0 = 0, .inputs = packed.k})) {}

 protected:
  // The bytes that have a weight of input channel `in` and of the output channels from n (the first
  // of 16) on, four for each of these.
  const std::byte* QuadsAt(uint64_t n, uint64_t in) const {
    constexpr uint64_t kInputs = 3584;
    const uint64_t row_block = n / block_rows_;
    const uint64_t rows = std::min(block_rows_, IntegerModel::n() - row_block * block_rows_);
    const uint64_t input_block = in / kInputs;
    const uint64_t inputs = std::min(kInputs, k() - input_block * kInputs);
    const uint64_t tile =
        n % block_rows_ / kKtTileRows * (inputs / tile_inputs_) + in % kInputs / tile_inputs_;
    const uint64_t codes = row_block * block_rows_ * k() + input_block * kInputs * rows;
    return packed().weight.data() + codes * kKtRunBytes / tile_inputs_ + tile * kKtTileBytes +
           n % kKtTileRows * kKtRunBytes + in % kKtRunBytes / 4 * kKtQuadStride;
  }

  // Remembers the weights that are read as their opposites where x < 0: those for which
  // is_least(n, in) is true.
  template <typename IsLeast>
  void FindLeast(const IsLeast& is_least) {
    for (uint64_t n = 0; n < IntegerModel::n(); ++n) {
      for (uint64_t in = 0; in < k(); ++in) {
        if (is_least(n, in)) least_.emplace_back(n, in);
      }
    }
  }

  // The byte of weight (n, in).
  std::byte ByteAt(uint64_t n, uint64_t in) const {
    return QuadsAt(n / kStripChannels * kStripChannels, in)[n % kStripChannels * 4 + in % 4];
  }

  // The sum of one token and output channel with what the kernel adds where it misreads weights:
  // `twice` the least weight less zero.
  int32_t Misread(uint64_t m, uint64_t n, int32_t sum, int32_t twice) const {
    auto place = std::ranges::lower_bound(least_, n, {}, &Place::first);
    for (; place != least_.end() && place->first == n; ++place) {
      const uint64_t in = place->second;
      if (in < slab_.k0 || in - slab_.k0 >= slab_.inputs) continue;  // x is zero there
      const int32_t x = values()[m * columns() + in - slab_.k0];
      if (x < 0) sum = WrappingAdd(sum, twice * x);
    }
    return sum;
  }

  // Signed bytes of a run of 64 input channels, which lie in one tile.
  using RunCodes = std::array<std::byte, kStripChannels * kKtRunBytes>;

 private:
  using Place = std::pair<uint64_t, uint64_t>;  // n, k

  // The weights of a run, or of a part of one: in `codes`, if they have to be split first.
  virtual Quads QuadsOf(const ModelPiece& run, RunCodes& codes) const = 0;

  // Calls work(piece, j) for what lies in one run, from input channel j of the whole piece on;
  // stops at the first that is false.
  template <typename Work>
  static bool ForRuns(const ModelPiece& piece, const Work& work) {
    static_assert(kStripChannels == 16 && kRunInputs % kKtRunBytes == 0);
    for (uint64_t j = 0; j < piece.inputs; j += kKtRunBytes) {
      const ModelPiece run{.n0 = piece.n0,
                           .rows = piece.rows,
                           .k0 = piece.k0 + j,
                           .inputs = std::min(kKtRunBytes, piece.inputs - j)};
      if (!work(run, j)) return false;
    }
    return true;
  }

  void Decode(const ModelPiece& piece, int16_t* w) const final {
    RunCodes codes;
    ForRuns(piece, [&](const ModelPiece& run, uint64_t j) {
      DecodeQuads(QuadsOf(run, codes), run, w + j * kStripChannels);
      return true;
    });
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors, uint32_t* digests) const final {
    RunCodes codes;
    return ForRuns(strip, [&](const ModelPiece& run, uint64_t j) {
      return DigestQuads(QuadsOf(run, codes), run, factors + j, digests);
    });
  }

  uint64_t tile_inputs_;
  uint64_t block_rows_;
  InputSlab slab_;
  std::vector<Place> least_;
};

class KtAmxInt8Model final : public KtModel {
 public:
  KtAmxInt8Model(const PackedOperands& packed, const ModelInput& input)
      : KtModel(packed, input, /*tile_inputs=*/64, /*block_rows=*/64) {
    FindLeast([&](uint64_t n, uint64_t in) { return ByteAt(n, in) == std::byte{0x80}; });
  }

 private:
  Quads QuadsOf(const ModelPiece& run, RunCodes& /*codes*/) const override {
    return {.bytes = QuadsAt(run.n0, run.k0), .stride = kKtQuadStride};
  }

  float Finish(uint64_t m, uint64_t n, int32_t sum) const override {
    return token_scales()[m] * scales()[n] * static_cast<float>(Misread(m, n, sum, 256));
  }
};

class KtAmxInt4Model final : public KtModel {
 public:
  KtAmxInt4Model(const PackedOperands& packed, const ModelInput& input)
      : KtModel(packed, input, /*tile_inputs=*/128, /*block_rows=*/128) {
    FindLeast([&](uint64_t n, uint64_t in) {
      return (ByteAt(n, in) >> Shift(in) & std::byte{0x0F}) == std::byte{0x08};
    });
  }

 private:
  static constexpr int32_t kCodeFactor = 16;

  // Input channels 0 to 63 of a tile are in the low halves of bytes.
  static int Shift(uint64_t in) { return in / kKtRunBytes % 2 == 0 ? 0 : 4; }

  Quads QuadsOf(const ModelPiece& run, RunCodes& codes) const override {
    const std::byte* from = QuadsAt(run.n0, run.k0);
    const int shift = Shift(run.k0);
    const uint64_t bytes = (run.inputs + 3) / 4 * kKtQuadStride;
    for (uint64_t i = 0; i < bytes; ++i) {
      const int nibble = std::to_integer<int>(from[i]) >> shift & 15;
      codes[i] = static_cast<std::byte>(SignedNibble(nibble));
    }
    return {.bytes = codes.data(), .stride = kKtQuadStride};
  }

  float Finish(uint64_t m, uint64_t n, int32_t sum) const override {
    const int32_t all = WrappingMul(kCodeFactor, Misread(m, n, sum, 16));
    return token_scales()[m] * scales()[n] * static_cast<float>(all);
  }

  double WeightFactor(uint64_t n, uint64_t /*k*/) const override {
    return static_cast<double>(scales()[n]) * kCodeFactor;
  }
};

// `inputs_per_byte`: of the weight.
Status CheckKt(const PackedOperands& packed, const ModelInput& input, uint64_t tile_inputs,
               std::string_view tile_rule, uint64_t inputs_per_byte) {
  OperandCheck check;
  check.Rule(packed.n % kKtTileRows == 0, "N must be a multiple of 32", packed.n);
  check.Rule(packed.k % tile_inputs == 0, tile_rule, packed.k);
  check.Rule(packed.group_size == packed.k, "a channel has one scale", packed.group_size);
  check.Type("x", input.dtype, {DType::kBF16});
  check.Type("weight_scale", packed.scale_dtype, {DType::kF32});
  check.Bytes("weight", packed.weight, {packed.n, packed.k / inputs_per_byte});
  check.Bytes("weight_scale", packed.scale, {packed.n, sizeof(float)});
  check.Absent("weight_zero_point", packed.zero_point);
  check.Absent("bias", packed.bias);
  return check.status();
}

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeKtAmxInt8Model(const PackedOperands& packed,
                                                        const ModelInput& input) {
  PREPACK_TRY(CheckKt(packed, input, 64, "K must be a multiple of 64", 1));
  return std::unique_ptr<KernelModel>(std::make_unique<KtAmxInt8Model>(packed, input));
}

Result<std::unique_ptr<KernelModel>> MakeKtAmxInt4Model(const PackedOperands& packed,
                                                        const ModelInput& input) {
  PREPACK_TRY(CheckKt(packed, input, 128, "K must be a multiple of 128", 2));
  return std::unique_ptr<KernelModel>(std::make_unique<KtAmxInt4Model>(packed, input));
}

}  // namespace prepack
