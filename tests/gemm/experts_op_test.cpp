// Experts of MXFP4, whole: _C::fused_experts_cpu runs both layers of the experts that each token
// was sent to. Here two kernel models stand for the layers, and the rest of the op is spelled out:
// the activation between them, and the sum over a token's experts. Every output of the golden files
// is predicted to the bit, of those of one token and of many; what is not predicted is the order of
// sums on CPUs with AMX.

#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <vector>

#include "catch.h"
#include "gemm/experts_file.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/isa.h"
#include "prepack/gemm/kernel_model.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr std::string_view kLayout = "vllm-cpu/mxfp4";

// VRCP14PS for a number from 1 up: the mantissa of the result runs along 64 straight pieces. Taken
// from the instruction, of which the op's compiler made the division of its activations.
float Rcp14(float value) {
  struct Piece {
    int64_t start;
    int64_t slope;
  };
  static constexpr std::array<Piece, 64> kPieces = {
      {{67107072, 1009}, {66074112, 977}, {65073664, 949}, {64102400, 921}, {63159040, 893},
       {62244608, 869},  {61354752, 843}, {60491264, 821}, {59650560, 797}, {58833920, 777},
       {58038272, 755},  {57264640, 735}, {56511488, 717}, {55778048, 699}, {55062784, 681},
       {54365184, 663},  {53686016, 647}, {53022976, 631}, {52377088, 617}, {51745536, 601},
       {51129600, 587},  {50528000, 573}, {49940992, 561}, {49366272, 547}, {48805376, 535},
       {48257024, 523},  {47721728, 513}, {47196672, 501}, {46683904, 491}, {46181632, 479},
       {45690368, 469},  {45209344, 459}, {44739072, 451}, {44277504, 441}, {43826176, 433},
       {43382784, 423},  {42949120, 415}, {42523904, 407}, {42106880, 399}, {41698048, 391},
       {41297920, 385},  {40903936, 377}, {40517888, 369}, {40139520, 363}, {39768320, 357},
       {39402752, 349},  {39044608, 343}, {38692864, 337}, {38347520, 331}, {38008064, 325},
       {37674496, 319},  {37347840, 315}, {37025280, 309}, {36708608, 303}, {36398080, 299},
       {36091648, 293},  {35791360, 289}, {35495680, 285}, {35204352, 279}, {34919168, 275},
       {34638080, 271},  {34361088, 267}, {34088192, 263}, {33819392, 259}}};
  const auto bits = std::bit_cast<uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  const uint32_t mantissa = bits & 0x7FFFFFU;
  if (mantissa == 0) return std::ldexp(1.0F, -exponent);
  const Piece& piece = kPieces[mantissa >> 17];
  const int64_t along = mantissa >> 7 & 0x3FFU;
  return std::ldexp(static_cast<float>((piece.start - piece.slope * along) >> 9), -17 - exponent);
}

// e^x as the op computes it: 2^n · a polynomial of degree 5, Horner's scheme in fused steps.
float Exp(float x) {
  constexpr float kLeast = -0x1.5d58a0p+6F;
  constexpr float kMost = 0x1.62e430p+6F;
  constexpr float kLog2E = 0x1.715476p+0F;
  constexpr float kLn2 = 0x1.62e430p-1F;
  constexpr std::array<float, 6> kFactors = {0.00828929059F, 0.0418978221F, 0.166676521F,
                                             0.499991506F,   0.999999701F,  1.0F};
  const float clamped = std::max(std::min(x, kMost), kLeast);
  const float n = std::floor(std::fma(clamped, kLog2E, 0.5F));
  const float rest = std::fma(-n, kLn2, clamped);
  float sum = kFactors[0];
  for (size_t i = 1; i < kFactors.size(); ++i) sum = std::fma(rest, sum, kFactors[i]);
  return x < kLeast ? 0 : std::ldexp(sum, static_cast<int>(n));
}

// x / (1 + e^(−alpha·x)).
float Swish(float x, float alpha) {
  return x * Rcp14(1.0F + Exp(-alpha * x));
}

float ToBF16(float value) {
  return RoundByInstruction(DType::kBF16, value);
}

// What the activation makes of the gates and ups of a token.
class Activation {
 public:
  explicit Activation(const GoldenFile& file)
      : interleaved_(file.Metadata("rows_of_w13").starts_with("interleaved")) {
    if (!interleaved_) return;
    alpha_ = std::stof(file.Metadata("alpha"));
    limit_ = std::stof(file.Metadata("limit"));
  }

  std::vector<float> Of(std::span<const float> rows) const {
    const size_t width = rows.size() / 2;
    std::vector<float> out;
    for (size_t j = 0; j < width; ++j) {
      const float gate = rows[interleaved_ ? 2 * j : j];
      const float up = rows[interleaved_ ? 2 * j + 1 : width + j];
      out.push_back(ToBF16(interleaved_ ? Clamped(gate, up) : Swish(gate, 1) * up));
    }
    return out;
  }

 private:
  // swiglu-oai, of gpt-oss.
  float Clamped(float gate, float up) const {
    up = std::max(std::min(up, limit_), -limit_);
    return (up + 1.0F) * Swish(std::min(gate, limit_), alpha_);
  }

  bool interleaved_;
  float alpha_ = 1;
  float limit_ = 0;
};

// y [tokens, width].
std::vector<float> Predict(const ExpertsFile& experts) {
  const Activation activation(experts.file());
  const uint64_t width = experts.width();
  const std::vector<float> parts = experts.Run(
      DType::kBF16,
      [&](uint64_t i) { return std::vector<float>(experts.X(i).begin(), experts.X(i).end()); },
      [&](std::span<const float> rows) { return activation.Of(rows); });
  std::vector<float> sums(experts.tokens() * width);
  for (uint64_t i = 0; i < parts.size(); ++i) {
    const uint64_t choice = i / width;
    sums[choice / experts.choices() * width + i % width] +=
        ToBF16(parts[i] * experts.Weight(choice));
  }
  for (float& sum : sums) sum = ToBF16(sum);
  return sums;
}

TEST_CASE("every output of the real op for experts is predicted to the bit") {
  size_t outputs = 0;
  const std::vector<std::filesystem::path> files = ExpertFilesOf(kLayout);
  for (const auto& path : files) {
    const ExpertsFile experts(path);
    INFO(path.filename());
    const std::vector<float> y = Floats(experts.file(), "y");
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      CHECK(Predict(experts) == y);
    }
    outputs += y.size();
  }
  CHECK(files.size() == 15);
  CHECK(outputs == 16512);
}

TEST_CASE("a layer of experts: operands are those that it multiplies, and slabs give the same") {
  const ExpertsFile experts(Fixture("golden_experts/vllm-cpu_mxfp4_odd-i160-h288.safetensors"));
  const PackedOperands packed = experts.Layer("13", 1);
  const std::vector<float> x = Floats(experts.file(), "x");
  const ModelInput input{.m = experts.tokens(), .dtype = DType::kBF16, .x = x};
  const auto model = Value(MakeKernelModel(kLayout, packed, input));

  const std::vector<double> activations = AllActivations(*model, experts.tokens(), packed.k);
  CHECK(std::vector<float>(activations.begin(), activations.end()) == x);
  const auto codes = experts.file().Values<uint8_t>("w13");
  const auto scales = experts.file().Values<uint8_t>("s13");
  std::vector<double> weights(packed.n * packed.k);
  model->Weights(0, weights);
  size_t wrong = 0;
  for (uint64_t i = 0; i < weights.size(); ++i) {
    const uint64_t at = packed.n * packed.k + i;  // of expert 1
    const int code = codes[at / 2] >> (at % 2 * 4) & 15;
    const double expected = static_cast<double>(F4E2M1ToF32(static_cast<uint8_t>(code))) *
                            std::ldexp(1.0, scales[at / 32] - 127);
    if (weights[i] != expected) ++wrong;
  }
  CHECK(wrong == 0);

  const InputSlab slab{.k0 = 128, .inputs = 128};
  std::vector<float> padded(x.size());
  std::vector<float> columns;
  for (uint64_t m = 0; m < input.m; ++m) {
    for (uint64_t k = 0; k < slab.inputs; ++k) {
      padded[m * packed.k + slab.k0 + k] = x[m * packed.k + slab.k0 + k];
      columns.push_back(padded[m * packed.k + slab.k0 + k]);
    }
    columns.push_back(0);
  }
  const auto run = [&](const ModelInput& of) {
    std::vector<float> y(of.m * packed.n);
    RequireOk(Value(MakeKernelModel(kLayout, packed, of))->Run(0, y));
    return y;
  };
  CHECK(run({.m = input.m, .dtype = DType::kBF16, .x = columns, .slab = slab}) ==
        run({.m = input.m, .dtype = DType::kBF16, .x = padded, .slab = {}}));
}

TEST_CASE("the model of experts refuses what the op does not take") {
  const ExpertsFile experts(Fixture("golden_experts/vllm-cpu_mxfp4_min.safetensors"));
  const std::vector<float> x = Floats(experts.file(), "x");
  const ModelInput input{.m = 1, .dtype = DType::kBF16, .x = x};
  const auto refuses = [&](auto change, const char* text) {
    PackedOperands packed = experts.Layer("13", 0);
    ModelInput changed = input;
    change(packed, changed);
    CheckError(MakeKernelModel(kLayout, packed, changed).status(), ErrorKind::kUsage, text);
  };
  refuses([](auto& p, auto&) { p.n = 48; }, "N must be a multiple of 32 (found 48)");
  refuses([](auto& p, auto&) { p.group_size = 16; },
          "a scale must cover 32 input channels (found 16)");
  refuses([](auto& p, auto&) { p.scale_dtype = DType::kF32; },
          "weight_scale: the kernel does not take this type (found F32, expected U8)");
  refuses([](auto& p, auto&) { p.bias_dtype = DType::kBF16; },
          "bias: the kernel does not take this type (found BF16, expected F32)");
  refuses([](auto&, auto& i) { i.dtype = DType::kF16; },
          "x: the kernel does not take this type (found F16, expected BF16)");
  refuses([](auto& p, auto&) { p.weight = p.weight.first(8); },
          "weight: the size does not match the shape");
  refuses([](auto& p, auto&) { p.scale = p.scale.first(8); },
          "weight_scale: the size does not match the shape");
  refuses([](auto& p, auto&) { p.zero_point = p.scale; },
          "weight_zero_point: the layout has no such tensor");
}

}  // namespace
}  // namespace prepack::testing
