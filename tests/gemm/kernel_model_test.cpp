// Holds every model against outputs of the real op, on the bytes of the real packer.

#include "prepack/gemm/kernel_model.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "gemm/kernel_model_file.h"
#include "prepack/base/checked.h"
#include "prepack/base/isa.h"
#include "prepack/base/parallel.h"
#include "prepack/gemm/reference.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"
#include "prepack/verify/products.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

std::vector<float> Predict(std::string_view layout, const PackedOperands& packed,
                           const ModelInput& input) {
  const std::unique_ptr<KernelModel> model = Value(MakeKernelModel(layout, packed, input));
  std::vector<float> y(input.m * packed.n, std::nanf(""));
  RequireOk(model->Run(0, y));
  return y;
}

// The same, a piece of so many blocks of channels at a time, from several threads at once.
std::vector<float> PredictInPieces(const std::string& layout, const PackedOperands& packed,
                                   const ModelInput& input, uint64_t blocks) {
  const std::unique_ptr<KernelModel> model = Value(MakeKernelModel(layout, packed, input));
  const uint64_t step = blocks * kModelUnit;
  std::vector<float> y(input.m * packed.n, std::nanf(""));
  RequireOk(ParallelFor(CeilDiv(packed.n, step), 3, [&](size_t i, unsigned) {
    const uint64_t n0 = i * step;
    const uint64_t rows = std::min(step, packed.n - n0);
    std::vector<float> piece(input.m * rows, std::nanf(""));
    Status status = model->Run(n0, piece);
    for (uint64_t j = 0; j < piece.size(); ++j) {
      y[j / rows * packed.n + n0 + j % rows] = piece[j];
    }
    return status;
  }));
  return y;
}

// Elements that differ; -0 counts as 0.
size_t Differences(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] == b[i] ? 0U : 1U;
  return count;
}

// Number of files with an output per layout, and of their elements. Every element of every file is
// equal: the kernels whose order of sums is open differ from ascending order only below the
// rounding of bf16, in all of these.
struct Coverage {
  std::string layout;
  size_t files;
  size_t elements;
};

const std::vector<Coverage>& Coverages() {
  static const std::vector<Coverage> coverages = {
      {"vllm-cpu/wna16", 39, 18400},
      {"vllm-cpu/int4-w4a8", 28, 15808},
      {"vllm-cpu/int8-vnni", 11, 6432},
      {"vllm-cpu/fp8-vnni", 11, 10176},
      {"vllm-cpu/fp8-w8a8-plain", 6, 1696},
      {"zentorch/woq", 32, 17414},
      {"zentorch/da8w4", 15, 6815},
      {"zentorch/int8", 10, 4871},
      {"zentorch/int8-dlp", 5, 798},
      {"vllm-arm/int4-w4a8", 17, 3705},
      {"vllm-arm/int8-plain", 10, 1952},
      {"onednn/w8a8", 10, 3678},
      {"kt/amxint8", 6, 4416},
      {"kt/amxint4", 6, 8832},
  };
  return coverages;
}

TEST_CASE("every model predicts every output of the real op to the bit") {
  for (const Coverage& coverage : Coverages()) {
    INFO("layout " << coverage.layout);
    size_t files = 0;
    size_t elements = 0;
    for (const auto& path : GoldenFilesOf(coverage.layout)) {
      const KernelModelFile golden(path);
      INFO("file " << golden.name);
      REQUIRE(golden.file.layout() == coverage.layout);
      REQUIRE_FALSE(golden.y.empty());
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        INFO(IsaName(isa));
        CHECK(Differences(Predict(coverage.layout, golden.packed, golden.input), golden.y) == 0);
      }
      ++files;
      elements += golden.y.size();
    }
    CHECK(files == coverage.files);
    CHECK(elements == coverage.elements);
  }
}

TEST_CASE("the model of kt/amxint8 misreads -128 as the real op does") {
  const KernelModelFile golden(Fixture("golden_kt/kt_amxint8_minus-128.safetensors"));
  const std::vector<float> y = Predict("kt/amxint8", golden.packed, golden.input);
  CHECK(Differences(y, golden.y) == 0);
  // With -127 in their place nothing is misread, and most outputs are others.
  std::vector<std::byte> weight(golden.packed.weight.begin(), golden.packed.weight.end());
  std::ranges::replace(weight, std::byte{0x80}, std::byte{0x81});
  PackedOperands other = golden.packed;
  other.weight = weight;
  CHECK(Differences(Predict("kt/amxint8", other, golden.input), golden.y) > golden.y.size() / 2);
}

TEST_CASE("the model of kt/amxint4 misreads -8 as the real op does") {
  const KernelModelFile golden(Fixture("golden_kt/kt_amxint4_minus-8.safetensors"));
  const std::vector<float> y = Predict("kt/amxint4", golden.packed, golden.input);
  CHECK(Differences(y, golden.y) == 0);
  std::vector<std::byte> weight(golden.packed.weight.begin(), golden.packed.weight.end());
  for (std::byte& codes : weight) {
    if ((codes & std::byte{0x0F}) == std::byte{0x08}) codes |= std::byte{0x01};
    if ((codes & std::byte{0xF0}) == std::byte{0x80}) codes |= std::byte{0x10};
  }
  PackedOperands other = golden.packed;
  other.weight = weight;
  CHECK(Differences(Predict("kt/amxint4", other, golden.input), golden.y) > golden.y.size() / 2);
}

PackRequest LongExpert(CodeType code, uint64_t n, uint64_t k) {
  PackRequest request;
  request.n = n;
  request.k = k;
  request.scheme = {.code = code,
                    .bits = CodeBits(code),
                    .granularity = Granularity::kChannel,
                    .group_size = k,
                    .activations = {.type = ActivationType::kInt, .bits = 8}};
  request.stored_scale_dtype = DType::kF32;
  request.experts = 1;
  return request;
}

// A panel of (31 n + 17 k + 5 (k / 64)) mod `count`, less half of that where codes are signed, and
// one more where they are not: 8 is zero there.
std::vector<std::byte> CodesOfFormula(const PackRequest& request, uint64_t count) {
  std::vector<std::byte> codes;
  for (uint64_t n = 0; n < request.n; ++n) {
    for (uint64_t k = 0; k < request.k; ++k) {
      const uint64_t number = (31 * n + 17 * k + 5 * (k / 64)) % count;
      if (!IsNibble(request.scheme.code)) {
        codes.push_back(static_cast<std::byte>(number - count / 2));
      } else if (k % 2 == 0) {
        codes.push_back(static_cast<std::byte>(number + 1));
      } else {
        codes.back() |= static_cast<std::byte>((number + 1) << 4);
      }
    }
  }
  return codes;
}

// Codes and bytes of the file would be large: a formula gives the codes.
void CheckLongInputs(const Layout& layout, const PackRequest& request, uint64_t count) {
  const std::string name(layout.id.substr(3));
  const GoldenFile file(Fixture("golden_kt/kt_" + name + "_long-k.safetensors"));
  std::vector<float> scales = file.Values<float>("packed.weight_scale");
  if (layout.scales.factor != nullptr) {
    for (float& scale : scales) scale /= layout.scales.factor(request);
  }
  const Probe probe{.codes = CodesOfFormula(request, count), .scales = scales, .zero_points = {}};
  const std::vector<std::byte> weight = PackWhole(layout, request, probe, PartRole::kWeight);
  const std::vector<std::byte> scale = PackWhole(layout, request, probe, PartRole::kScale);
  PackedOperands packed;
  packed.n = request.n;
  packed.k = request.k;
  packed.group_size = request.k;
  packed.weight = weight;
  packed.scale = scale;
  packed.scale_dtype = DType::kF32;
  const std::vector<float> x = Floats(file, "x");
  const ModelInput input{.m = file.At("x").shape[0], .dtype = DType::kBF16, .x = x};
  CHECK(Differences(Predict(layout.id, packed, input), Floats(file, "y")) == 0);
}

TEST_CASE("experts of kt with more input channels than a block give what the real op does") {
  CheckLongInputs(*FindLayout("kt/amxint8"), LongExpert(CodeType::kS8, 64, 3648), 255);
  CheckLongInputs(*FindLayout("kt/amxint4"), LongExpert(CodeType::kU4, 128, 3712), 15);
}

TEST_CASE("no golden file is left out") {
  size_t with_output = 0;
  for (const Coverage& coverage : Coverages()) with_output += coverage.files;
  // The rest are the six files of vllm-cpu/fp8-w8a8-vnni4.
  CHECK(with_output == 206);
  CHECK(GoldenFiles().size() == 212);
}

TEST_CASE("fp8-w8a8-vnni4 holds the same numbers as the plain file of the same case") {
  size_t files = 0;
  for (const auto& path : GoldenFilesOf("vllm-cpu/fp8-w8a8-vnni4")) {
    const KernelModelFile golden(path);
    INFO("file " << golden.name);
    std::string twin = path.string();
    twin.replace(twin.find("-vnni4_"), 7, "-plain_");
    const KernelModelFile plain(twin);
    REQUIRE(golden.x == plain.x);
    CHECK(Differences(Predict("vllm-cpu/fp8-w8a8-vnni4", golden.packed, golden.input), plain.y) ==
          0);
    ++files;
  }
  CHECK(files == 6);
}

// The int8 codes [N, K] of a file as they are, or transposed.
std::vector<std::byte> PlainWeights(const KernelModelFile& golden, bool transposed) {
  std::vector<std::byte> codes = golden.file.At("codes").bytes;
  if (!transposed) return codes;
  std::vector<std::byte> result(codes.size());
  const uint64_t n = golden.packed.n;
  const uint64_t k = golden.packed.k;
  for (uint64_t i = 0; i < codes.size(); ++i) result[i % k * n + i / k] = codes[i];
  return result;
}

TEST_CASE("plain int8 weights give what oneDNN makes of its blocked form") {
  const auto [layout, transposed] =
      GENERATE(std::pair<std::string, bool>{"onednn/w8a8", true},
               std::pair<std::string, bool>{"vllm-cpu/int8-plain", false});
  size_t files = 0;
  for (const auto& path : GoldenFilesOf("onednn/w8a8")) {
    const KernelModelFile golden(path);
    INFO("file " << golden.name << " as " << layout);
    const std::vector<std::byte> weights = PlainWeights(golden, transposed);
    PackedOperands packed = golden.packed;
    packed.weight = weights;
    CHECK(Differences(Predict(layout, packed, golden.input), golden.y) == 0);
    ++files;
  }
  CHECK(files == 10);
}

// Nibbles [K, N] of the u4 codes of a file, as two's complement when it is symmetric.
std::vector<std::byte> NibblesByInput(const KernelModelFile& golden) {
  const std::vector<uint8_t> codes = golden.file.Values<uint8_t>("codes");
  const uint64_t n = golden.packed.n;
  const uint64_t k = golden.packed.k;
  std::vector<std::byte> nibbles(codes.size() / 2);
  for (uint64_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<std::byte>(codes[i % n * k + i / n]);
    const std::byte nibble = golden.packed.zero_point.empty() ? code ^ std::byte{8} : code;
    nibbles[i / 2] |= i % 2 == 0 ? nibble : nibble << 4;
  }
  return nibbles;
}

std::vector<std::byte> NibbleZeroPoints(const KernelModelFile& golden) {
  std::vector<std::byte> nibbles(golden.packed.zero_point.size() / 2);
  for (uint64_t i = 0; i < golden.packed.zero_point.size(); ++i) {
    nibbles[i / 2] |= golden.packed.zero_point[i] << (i % 2 * 4);
  }
  return nibbles;
}

TEST_CASE("onednn/w4a16 computes what zentorch computes of the same codes") {
  size_t files = 0;
  for (const auto& path : GoldenFilesOf("zentorch/woq")) {
    const KernelModelFile golden(path);
    if (golden.packed.n % 2 != 0) continue;
    INFO("file " << golden.name);
    const std::vector<std::byte> weights = NibblesByInput(golden);
    const std::vector<std::byte> zero_points = NibbleZeroPoints(golden);
    PackedOperands packed = golden.packed;
    packed.weight = weights;
    packed.zero_point = zero_points;
    CHECK(Differences(Predict("onednn/w4a16", packed, golden.input), golden.y) == 0);
    ++files;
  }
  CHECK(files == 30);
}

TEST_CASE("bf16-vnni computes what zentorch computes of the same weights") {
  size_t files = 0;
  for (const auto& path : GoldenFilesOf("zentorch/woq")) {
    const KernelModelFile golden(path);
    if (golden.packed.n % 16 != 0 || golden.packed.k % 32 != 0) continue;
    INFO("file " << golden.name);
    const uint64_t n = golden.packed.n;
    const uint64_t k = golden.packed.k;
    std::vector<double> w(n * k);
    Value(MakeKernelModel("zentorch/woq", golden.packed, golden.input))->Weights(0, w);
    // Blocks of 32 channels, the last of 16 where N asks for it: pairs of inputs, channel by
    // channel.
    std::vector<uint16_t> weights;
    for (uint64_t n0 = 0; n0 < n; n0 += 32) {
      for (uint64_t k0 = 0; k0 < k; k0 += 2) {
        for (uint64_t row = n0; row < std::min(n, n0 + 32); ++row) {
          weights.push_back(F32ToBF16(static_cast<float>(w[row * k + k0])));
          weights.push_back(F32ToBF16(static_cast<float>(w[row * k + k0 + 1])));
        }
      }
    }
    std::vector<float> bias;
    if (golden.file.Has("bias")) bias = golden.file.Values<float>("bias");
    PackedOperands packed;
    packed.n = n;
    packed.k = k;
    packed.group_size = k;
    packed.weight = std::as_bytes(std::span(weights));
    packed.bias = std::as_bytes(std::span(bias));
    CHECK(Differences(Predict("vllm-cpu/bf16-vnni", packed, golden.input), golden.y) == 0);
    ++files;
  }
  CHECK(files == 28);
}

TEST_CASE("plain bf16 weights are rows of output channels") {
  // [2, 3]: 1 2 3, -1 0.5 0.
  const std::vector<uint16_t> weight = {0x3F80, 0x4000, 0x4040, 0xBF80, 0x3F00, 0};
  const std::vector<uint16_t> bias = {0x3F80, 0x4000};
  PackedOperands packed;
  packed.n = 2;
  packed.k = 3;
  packed.group_size = 3;
  packed.weight = std::as_bytes(std::span(weight));
  packed.bias = std::as_bytes(std::span(bias));
  packed.bias_dtype = DType::kBF16;
  const std::vector<float> x = {1, 10, 100, 0, 2, 0};
  const ModelInput input{.m = 2, .dtype = DType::kBF16, .x = x};
  CHECK(Predict("plain/bf16", packed, input) == std::vector<float>{322, 6, 5, 3});
  const std::vector<uint16_t> transposed = {0x3F80, 0xBF80, 0x4000, 0x3F00, 0x4040, 0};  // [3, 2]
  packed.weight = std::as_bytes(std::span(transposed));
  CHECK(Predict("plain/bf16-conv1d", packed, input) == std::vector<float>{322, 6, 5, 3});
}

TEST_CASE("the last block of bf16-vnni may have 16 channels") {
  constexpr uint64_t kN = 48;
  constexpr uint64_t kK = 32;
  // Weight (n, k) is n + k / 64; one row of x per input channel picks it out.
  std::vector<uint16_t> weights;
  for (const auto& [begin, end] : {std::pair<uint64_t, uint64_t>{0, 32}, {32, 48}}) {
    for (uint64_t pair = 0; pair < kK / 2; ++pair) {
      for (uint64_t n = begin; n < end; ++n) {
        for (const uint64_t k : {2 * pair, 2 * pair + 1}) {
          weights.push_back(F32ToBF16(static_cast<float>(n) + static_cast<float>(k) / 64));
        }
      }
    }
  }
  std::vector<float> x(kK * kK);
  for (uint64_t k = 0; k < kK; ++k) x[k * kK + k] = 1;
  PackedOperands packed;
  packed.n = kN;
  packed.k = kK;
  packed.group_size = kK;
  packed.weight = std::as_bytes(std::span(weights));
  const std::vector<float> y =
      Predict("vllm-cpu/bf16-vnni", packed, {.m = kK, .dtype = DType::kBF16, .x = x});
  size_t wrong = 0;
  for (uint64_t i = 0; i < y.size(); ++i) {
    const uint64_t k = i / kN;
    const float weight = static_cast<float>(i % kN) + static_cast<float>(k) / 64;
    wrong += y[i] == BF16ToF32(F32ToBF16(weight)) ? 0U : 1U;
  }
  CHECK(wrong == 0);
}

// One output channel's worth of arithmetic: K = 32 weights of 1 in every one of 32 channels, and a
// bias that takes off the product of sum and scales as f32 rounds it. What is left is what the
// rounding lost, when the kernel fuses product and bias, and 0 when it does not.
struct BiasRounding {
  std::string layout;
  std::vector<std::byte> weight;
  std::vector<std::byte> zero_point;
  bool token_scale_first;  // (d * s_a) * s_w, or (d * s_w) * s_a
  bool fused;
};

void AppendInts(std::vector<std::byte>& bytes, int32_t value, size_t count) {
  const auto one = std::as_bytes(std::span(&value, 1));
  for (size_t i = 0; i < count; ++i) bytes.insert(bytes.end(), one.begin(), one.end());
}

TEST_CASE("kernels fuse the bias with the last product or do not") {
  constexpr uint64_t kSize = 32;
  const std::vector<std::byte> ones(kSize * kSize, std::byte{1});
  std::vector<std::byte> vnni = ones;
  AppendInts(vnni, 128 * kSize, kSize);
  std::vector<std::byte> int4(kSize * kSize / 2, std::byte{0x99});
  AppendInts(int4, kSize, kSize);
  const std::vector<std::byte> eights(kSize, std::byte{8});
  const std::vector<BiasRounding> cases = {
      {"vllm-cpu/int8-vnni", vnni, {}, true, true},
      {"vllm-cpu/int4-w4a8", int4, eights, true, true},
      {"zentorch/int8", ones, {}, false, false},
      {"onednn/w8a8", ones, {}, false, true},
  };
  for (const BiasRounding& example : cases) {
    INFO("layout " << example.layout);
    // oneDNN's handler takes the bias in the type of the output only.
    const DType dtype = example.layout == "onednn/w8a8" ? DType::kF32 : DType::kBF16;
    const std::vector<float> x(kSize, 3);
    const std::vector<float> scale(kSize, 0.1F);
    const float token_scale = 3.0F / 127.0F;
    const float sum = 127 * kSize;
    const float first = sum * (example.token_scale_first ? token_scale : scale[0]);
    const float second = example.token_scale_first ? scale[0] : token_scale;
    const std::vector<float> bias(kSize, -(first * second));
    PackedOperands packed;
    packed.n = kSize;
    packed.k = kSize;
    packed.group_size = kSize;
    packed.weight = example.weight;
    packed.scale = std::as_bytes(std::span(scale));
    packed.zero_point = example.zero_point;
    packed.bias = std::as_bytes(std::span(bias));
    const double lost = static_cast<double>(first) * second + static_cast<double>(bias[0]);
    REQUIRE(lost != 0);
    const float rounded = static_cast<float>(lost);
    const float expected = dtype == DType::kF32 ? rounded : BF16ToF32(F32ToBF16(rounded));
    const std::vector<float> y = Predict(example.layout, packed, {.m = 1, .dtype = dtype, .x = x});
    CHECK(y == std::vector<float>(kSize, example.fused ? expected : 0.0F));
  }
}

TEST_CASE("integer sums wrap as those of the kernel do") {
  // 254 * 127 * K is beyond int32, and the compensation brings it back.
  constexpr uint64_t kN = 32;
  constexpr uint64_t kK = 70016;
  std::vector<std::byte> weight(kN * kK, std::byte{127});
  AppendInts(weight, kK * 128 * 127, kN);
  const std::vector<float> scale(kN, 1);
  const std::vector<float> x(kK, 127);
  PackedOperands packed;
  packed.n = kN;
  packed.k = kK;
  packed.group_size = kK;
  packed.weight = weight;
  packed.scale = std::as_bytes(std::span(scale));
  const float sum = kK * 127 * 127;
  CHECK(Predict("vllm-cpu/int8-vnni", packed, {.m = 1, .dtype = DType::kBF16, .x = x}) ==
        std::vector<float>(kN, BF16ToF32(F32ToBF16(sum))));
}

TEST_CASE("int4-w4a8 rounds halves of F16 activations away from zero, of BF16 to even") {
  for (const auto& [name, half] : {std::pair<std::string, double>{"vllm-cpu_int4-w4a8_f16-act", 1},
                                   {"vllm-cpu_int4-w4a8_g256-block128-asym", 0}}) {
    const KernelModelFile golden(Fixture("golden/" + name + ".safetensors"));
    std::vector<float> x(golden.packed.k);
    x[0] = 127;
    x[1] = 0.5F;
    const ModelInput input = {.m = 1, .dtype = golden.input.dtype, .x = x};
    const auto model = Value(MakeKernelModel("vllm-cpu/int4-w4a8", golden.packed, input));
    CHECK(model->Activation(0, 1) == half);
  }
}

TEST_CASE("onednn/w4a8 scales exact sums of each group") {
  // N = 2, K = 4, groups of 2; activations are multiples of the scale 1, so nothing is rounded.
  const std::vector<float> x = {127, -2, 3, 4};
  const std::vector<std::byte> weight = {std::byte{0x21}, std::byte{0xF3}, std::byte{0x70},
                                         std::byte{0x85}};  // two's complement, [K, N]
  const std::vector<float> scale = {0.5F, 2, 4, 0.25F};     // [G, N]
  const std::vector<float> bias = {1000, 0};
  PackedOperands packed;
  packed.n = 2;
  packed.k = 4;
  packed.group_size = 2;
  packed.weight = weight;
  packed.scale = std::as_bytes(std::span(scale));
  packed.bias = std::as_bytes(std::span(bias));
  const ModelInput input = {.m = 1, .dtype = DType::kF32, .x = x};
  // Channel 0: codes 1 3 | 0 5; channel 1: codes 2 -1 | 7 -8.
  CHECK(Predict("onednn/w4a8", packed, input) ==
        std::vector<float>{(127 - 6) * 0.5F + 20 * 4 + 1000, (254 + 2) * 2 + (21 - 32) * 0.25F});
  // With zero points 1, 2 | 3, 4 the same nibbles are unsigned.
  const std::vector<std::byte> zero_point = {std::byte{0x21}, std::byte{0x43}};
  packed.zero_point = zero_point;
  CHECK(Predict("onednn/w4a8", packed, input) ==
        std::vector<float>{(0 * 127 - 2 * 2) * 0.5F + (3 * -3 + 4 * 2) * 4 + 1000,
                           (0 * 127 - 2 * 13) * 2 + (3 * 3 + 4 * 4) * 0.25F});
}

TEST_CASE("activations and weights multiplied in f64 come close to the output") {
  // Quantization is part of both, so what is left is the rounding of sums and of the output.
  const std::map<DType, double> least_db = {
      {DType::kBF16, 50}, {DType::kF16, 68}, {DType::kF32, 110}};
  size_t files = 0;
  for (const auto& path : GoldenFiles()) {
    const KernelModelFile golden(path);
    if (golden.y.empty()) continue;
    INFO("file " << golden.name);
    const uint64_t n = golden.packed.n;
    const uint64_t k = golden.packed.k;
    const std::unique_ptr<KernelModel> model =
        Value(MakeKernelModel(golden.file.layout(), golden.packed, golden.input));
    std::vector<double> w(n * k);
    model->Weights(0, w);
    std::vector<double> y(golden.y.size());
    ReferenceGemm(golden.input.m, n, k, AllActivations(*model, golden.input.m, k), w, y);
    if (golden.file.Has("bias")) {
      const std::vector<float> bias = golden.file.Values<float>("bias");
      for (size_t i = 0; i < y.size(); ++i) y[i] += static_cast<double>(bias[i % n]);
    }
    FigureSums sums;
    sums.Add({.n0 = 0, .rows = golden.input.m, .channels = n}, y, golden.y);
    CHECK(sums.Result().sqnr_db >= least_db.at(golden.input.dtype));
    ++files;
  }
  CHECK(files == 206);
}

TEST_CASE("weights of some channels are those rows of all weights") {
  for (const std::string_view layout : ModelledLayouts()) {
    const std::vector<std::filesystem::path> paths = GoldenFilesOf(std::string(layout));
    if (paths.empty()) continue;  // no software has written these
    const KernelModelFile golden(paths.front());
    INFO("file " << golden.name);
    const uint64_t n = golden.packed.n;
    const uint64_t k = golden.packed.k;
    const std::unique_ptr<KernelModel> model =
        Value(MakeKernelModel(layout, golden.packed, golden.input));
    std::vector<double> all(n * k);
    model->Weights(0, all);
    for (const uint64_t first : {uint64_t{1}, n / 2, n - 1}) {
      const uint64_t rows = std::min<uint64_t>(n - first, 19);
      std::vector<double> some(rows * k);
      model->Weights(first, some);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * k);
      CHECK(std::equal(some.begin(), some.end(), begin));
    }
  }
}

TEST_CASE("the prediction does not depend on how the channels are divided") {
  size_t divided = 0;
  for (const Coverage& coverage : Coverages()) {
    for (const auto& path : GoldenFilesOf(coverage.layout)) {
      const KernelModelFile golden(path);
      if (golden.packed.n <= kModelUnit) continue;
      INFO("file " << golden.name);
      const std::vector<float> whole = Predict(coverage.layout, golden.packed, golden.input);
      for (const uint64_t blocks : {uint64_t{1}, uint64_t{2}}) {
        CHECK(whole == PredictInPieces(coverage.layout, golden.packed, golden.input, blocks));
      }
      ++divided;
    }
  }
  CHECK(divided == 83);
}

// Two inputs of each row, the rest zero; the middle one of three rows stays as it is.
std::vector<float> Thinned(const KernelModelFile& golden) {
  const uint64_t k = golden.packed.k;
  std::vector<float> x(golden.x.size());
  for (uint64_t m = 0; m < golden.input.m; ++m) {
    for (uint64_t i = 0; i < k; ++i) {
      if (m % 3 == 1 || i == (7 * m) % k || i == k - 1) x[m * k + i] = golden.x[m * k + i];
    }
  }
  return x;
}

TEST_CASE("rows that are nearly all zero are multiplied like others") {
  size_t files = 0;
  for (const auto& path : GoldenFiles()) {
    const KernelModelFile golden(path);
    // Some cases are about weights of a size that hides activations.
    if (golden.y.empty() || golden.name.find("extreme") != std::string::npos) continue;
    INFO("file " << golden.name);
    const uint64_t n = golden.packed.n;
    const uint64_t k = golden.packed.k;
    const std::vector<float> x = Thinned(golden);
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      const ModelInput input{.m = golden.input.m, .dtype = golden.input.dtype, .x = x};
      const auto model = Value(MakeKernelModel(golden.file.layout(), golden.packed, input));
      std::vector<double> w(n * k);
      model->Weights(0, w);
      std::vector<double> truth(golden.y.size());
      ReferenceGemm(input.m, n, k, AllActivations(*model, input.m, k), w, truth);
      if (golden.file.Has("bias")) {
        const std::vector<float> bias = golden.file.Values<float>("bias");
        for (size_t i = 0; i < truth.size(); ++i) truth[i] += static_cast<double>(bias[i % n]);
      }
      std::vector<float> y(truth.size());
      RequireOk(model->Run(0, y));
      FigureSums sums;
      sums.Add({.n0 = 0, .rows = input.m, .channels = n}, truth, y);
      CHECK(sums.Result().sqnr_db >= 48);
    }
    ++files;
  }
  CHECK(files == 178);
}

}  // namespace
}  // namespace prepack::testing
