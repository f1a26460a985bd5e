#include "sample_formats.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "prepack/base/float_convert.h"

namespace prepack::bench {
namespace {

using Tensors = std::vector<SampleTensor>;

constexpr uint64_t kGroup = kSampleGroup;

// Steps between two neighbouring codes for weights of about 0.02 rms.
constexpr float kStep4 = 0.005F;
constexpr float kStep8 = 0.0004F;
constexpr float kStepFp8 = 0.02F;
constexpr uint64_t kMxGroup = 32;
constexpr uint64_t kNvfp4Group = 16;
constexpr float kNvfp4Global = 8192;  // divides

float Step(uint32_t bits) {
  return bits == 8 ? kStep8 : kStep4;
}

Json CtConfig(std::string_view format, const Json& weights, const Json& activations) {
  return {
      {"quant_method", "compressed-tensors"},
      {"format", format},
      {"quantization_status", "compressed"},
      {"version", "0.19.0"},
      {"ignore", Json::array()},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}}}}}};
}

Json GroupWeights(uint32_t bits, bool symmetric) {
  return {{"num_bits", bits},     {"type", "int"},          {"strategy", "group"},
          {"group_size", kGroup}, {"symmetric", symmetric}, {"dynamic", false}};
}

Json ChannelWeights(std::string_view type) {
  return {{"num_bits", 8},
          {"type", type},
          {"strategy", "channel"},
          {"symmetric", true},
          {"dynamic", false}};
}

Json PerToken(std::string_view type) {
  return {{"num_bits", 8},
          {"type", type},
          {"strategy", "token"},
          {"symmetric", true},
          {"dynamic", true}};
}

template <uint32_t kBits>
Json CtPackedConfig() {
  return CtConfig("pack-quantized", GroupWeights(kBits, true), nullptr);
}

template <uint32_t kBits>
Tensors CtPacked(uint64_t n, uint64_t k) {
  return {
      {.suffix = "weight_packed",
       .dtype = DType::kI32,
       .shape = {n, k * kBits / 32},
       .content = Content::kCodes},
      {.suffix = "weight_scale",
       .dtype = DType::kBF16,
       .shape = {n, k / kGroup},
       .content = Content::kScales,
       .step = Step(kBits)},
      {.suffix = "weight_shape", .dtype = DType::kI64, .shape = {2}, .content = Content::kShape}};
}

Json CtAsymmetricConfig() {
  return CtConfig("pack-quantized", GroupWeights(4, false), nullptr);
}

Tensors CtAsymmetric(uint64_t n, uint64_t k) {
  Tensors tensors = CtPacked<4>(n, k);
  tensors.push_back({.suffix = "weight_zero_point",
                     .dtype = DType::kI32,
                     .shape = {n / 8, k / kGroup},
                     .content = Content::kZeroPoints});
  return tensors;
}

Json CtActOrderConfig() {
  Json weights = GroupWeights(4, true);
  weights["actorder"] = "group";
  return CtConfig("pack-quantized", weights, nullptr);
}

Tensors CtActOrder(uint64_t n, uint64_t k) {
  Tensors tensors = CtPacked<4>(n, k);
  tensors.push_back({.suffix = "weight_g_idx",
                     .dtype = DType::kI32,
                     .shape = {k},
                     .content = Content::kShuffledGroups});
  return tensors;
}

Json CtInt8Config() {
  return CtConfig("int-quantized", ChannelWeights("int"), PerToken("int"));
}

Tensors CtInt8(uint64_t n, uint64_t k) {
  return {
      {.suffix = "weight", .dtype = DType::kI8, .shape = {n, k}, .content = Content::kCodes},
      {.suffix = "weight_scale",
       .dtype = DType::kBF16,
       .shape = {n, 1},
       .content = Content::kScales,
       .step = kStep8},
  };
}

Json CtW4A8Config() {
  return CtConfig("int-quantized", GroupWeights(4, true), PerToken("int"));
}

Tensors CtW4A8(uint64_t n, uint64_t k) {
  return {{.suffix = "weight", .dtype = DType::kI8, .shape = {n, k}, .content = Content::kNibbles},
          {.suffix = "weight_scale",
           .dtype = DType::kBF16,
           .shape = {n, k / kGroup},
           .content = Content::kScales,
           .step = kStep4}};
}

Json CtFp8Config() {
  return CtConfig("float-quantized", ChannelWeights("float"), PerToken("float"));
}

Tensors CtFp8(uint64_t n, uint64_t k) {
  return {
      {.suffix = "weight", .dtype = DType::kF8E4M3, .shape = {n, k}, .content = Content::kFp8Codes},
      {.suffix = "weight_scale",
       .dtype = DType::kBF16,
       .shape = {n, 1},
       .content = Content::kScales,
       .step = kStepFp8}};
}

Json CtMxfp4Config() {
  const Json weights = {{"num_bits", 4},
                        {"type", "float"},
                        {"strategy", "group"},
                        {"group_size", kMxGroup},
                        {"symmetric", true}};
  return CtConfig("mxfp4-pack-quantized", weights, nullptr);
}

Tensors CtMxfp4(uint64_t n, uint64_t k) {
  return {{.suffix = "weight_packed",
           .dtype = DType::kU8,
           .shape = {n, k / 2},
           .content = Content::kCodes},
          {.suffix = "weight_scale",
           .dtype = DType::kU8,
           .shape = {n, k / kMxGroup},
           .content = Content::kExponents}};
}

Json CtNvfp4Config() {
  const Json weights = {{"num_bits", 4},
                        {"type", "float"},
                        {"strategy", "tensor_group"},
                        {"group_size", kNvfp4Group},
                        {"symmetric", true}};
  return CtConfig("nvfp4-pack-quantized", weights, nullptr);
}

Tensors CtNvfp4(uint64_t n, uint64_t k) {
  return {{.suffix = "weight_packed",
           .dtype = DType::kU8,
           .shape = {n, k / 2},
           .content = Content::kCodes},
          {.suffix = "weight_scale",
           .dtype = DType::kF8E4M3,
           .shape = {n, k / kNvfp4Group},
           .content = Content::kExponents},
          {.suffix = "weight_global_scale",
           .dtype = DType::kF32,
           .shape = {1},
           .content = Content::kScales,
           .step = kNvfp4Global}};
}

// Experts are stacked, and nothing else is quantized: see llama_checkpoint.h.
Json GptOssConfig() {
  return {{"quant_method", "mxfp4"},
          {"modules_to_not_convert", {"model.layers.*.self_attn", "model.layers.*.mlp.router"}}};
}

Tensors NoTensors(uint64_t /*n*/, uint64_t /*k*/) {
  return {};
}

Json Fp8BlockConfig() {
  return {{"quant_method", "fp8"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {kGroup, kGroup}}};
}

Tensors Fp8Block(uint64_t n, uint64_t k) {
  return {
      {.suffix = "weight", .dtype = DType::kF8E4M3, .shape = {n, k}, .content = Content::kFp8Codes},
      {.suffix = "weight_scale_inv",
       .dtype = DType::kF32,
       .shape = {n / kGroup, k / kGroup},
       .content = Content::kScales,
       .step = kStepFp8}};
}

template <uint32_t kBits, bool kActOrder>
Json GptqConfig() {
  return {{"quant_method", "gptq"},     {"bits", kBits}, {"group_size", kGroup},
          {"desc_act", kActOrder},      {"sym", true},   {"lm_head", false},
          {"checkpoint_format", "gptq"}};
}

// What AutoRound stores, too.
template <uint32_t kBits>
Tensors WithoutOrder(uint64_t n, uint64_t k) {
  return {{.suffix = "qweight",
           .dtype = DType::kI32,
           .shape = {k * kBits / 32, n},
           .content = Content::kCodes},
          {.suffix = "qzeros",
           .dtype = DType::kI32,
           .shape = {k / kGroup, n * kBits / 32},
           .content = Content::kMiddle,
           .bits = kBits},
          {.suffix = "scales",
           .dtype = DType::kF16,
           .shape = {k / kGroup, n},
           .content = Content::kScales,
           .step = Step(kBits)}};
}

template <uint32_t kBits, bool kActOrder>
Tensors Gptq(uint64_t n, uint64_t k) {
  Tensors tensors = WithoutOrder<kBits>(n, k);
  tensors.push_back({.suffix = "g_idx",
                     .dtype = DType::kI32,
                     .shape = {k},
                     .content = kActOrder ? Content::kShuffledGroups : Content::kGroups});
  return tensors;
}

template <uint32_t kBits>
Json AutoRoundConfig() {
  return {{"quant_method", "auto-round"},
          {"bits", kBits},
          {"group_size", kGroup},
          {"data_type", "int"},
          {"sym", true},
          {"autoround_version", "0.16.1"},
          {"packing_format", "auto_round:auto_gptq"}};
}

Json AwqConfig(std::string_view version) {
  return {{"quant_method", "awq"},
          {"bits", 4},
          {"group_size", kGroup},
          {"zero_point", true},
          {"version", version}};
}

Json AwqGemmConfig() {
  return AwqConfig("gemm");
}

Tensors AwqGemm(uint64_t n, uint64_t k) {
  const uint64_t groups = k / kGroup;
  return {
      {.suffix = "qweight", .dtype = DType::kI32, .shape = {k, n / 8}, .content = Content::kCodes},
      {.suffix = "qzeros",
       .dtype = DType::kI32,
       .shape = {groups, n / 8},
       .content = Content::kZeroPoints},
      {.suffix = "scales",
       .dtype = DType::kF16,
       .shape = {groups, n},
       .content = Content::kScales,
       .step = kStep4}};
}

Json AwqGemvConfig() {
  return AwqConfig("gemv");
}

// Eight groups to a word of zero points; a K that does not fill it would need padding.
constexpr uint64_t kGemvMultiple = 8 * kGroup;

Tensors AwqGemv(uint64_t n, uint64_t k) {
  const uint64_t words = k / kGemvMultiple;
  return {
      {.suffix = "qweight", .dtype = DType::kI32, .shape = {n, k / 8}, .content = Content::kCodes},
      {.suffix = "qzeros",
       .dtype = DType::kI32,
       .shape = {n, words},
       .content = Content::kZeroPoints},
      {.suffix = "scales",
       .dtype = DType::kF16,
       .shape = {n, words * 8},
       .content = Content::kScales,
       .step = kStep4}};
}

Json AwqGemvFastConfig() {
  return AwqConfig("gemv_fast");
}

Tensors AwqGemvFast(uint64_t n, uint64_t k) {
  const SampleTensor scales = {.suffix = "scales",
                               .dtype = DType::kF16,
                               .shape = {k / kGroup, n},
                               .content = Content::kScales,
                               .step = kStep4};
  SampleTensor offsets = scales;
  offsets.suffix = "qzeros";
  offsets.content = Content::kOffsets;
  return {
      {.suffix = "qweight", .dtype = DType::kI16, .shape = {n / 4, k}, .content = Content::kCodes},
      scales,
      std::move(offsets)};
}

// Fills with copies of the first bytes of random words, each masked: `keep` of them, and `set`.
void FillRandom(SplitMix64& random, uint64_t keep, uint64_t set, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t value = (random.Next() & keep) | set;
    std::memcpy(out.data() + i, &value, std::min<size_t>(8, out.size() - i));
  }
}

// -8 ... 7 from four random bits: 0 ... 15, less 8.
void FillNibbles(SplitMix64& random, std::span<std::byte> out) {
  FillRandom(random, 0x0F0F0F0F0F0F0F0F, 0, out);
  for (std::byte& code : out) code = static_cast<std::byte>(std::to_integer<unsigned>(code) - 8U);
}

void Store(DType dtype, float value, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, &value, 4);
    return;
  }
  const uint16_t bits = dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
  std::memcpy(out, &bits, 2);
}

// Offsets draw the numbers of their scales.
uint64_t Stream(Content content) {
  return static_cast<uint64_t>(content == Content::kOffsets ? Content::kScales : content);
}

}  // namespace

bool IsBulk(Content content) {
  return content == Content::kCodes || content == Content::kNibbles ||
         content == Content::kFp8Codes || content == Content::kWeights;
}

const std::vector<SampleFormat>& SampleFormats() {
  static const std::vector<SampleFormat> formats = {
      {"ct-w4a16", "ct pack-quantized 4-bit", 4, kGroup, CtPackedConfig<4>, CtPacked<4>},
      {"ct-w8a16", "ct pack-quantized 8-bit", 8, kGroup, CtPackedConfig<8>, CtPacked<8>},
      {"ct-w3a16", "ct pack-quantized 3-bit", 3, kGroup, CtPackedConfig<3>, CtPacked<3>},
      {"ct-w2a16", "ct pack-quantized 2-bit", 2, kGroup, CtPackedConfig<2>, CtPacked<2>},
      {"ct-w4a16-asym", "ct asymmetric 4-bit", 4, kGroup, CtAsymmetricConfig, CtAsymmetric},
      {"ct-act-order", "ct act-order 4-bit", 4, kGroup, CtActOrderConfig, CtActOrder},
      {"ct-w8a8", "ct int-quantized 8-bit", 8, kGroup, CtInt8Config, CtInt8},
      {"ct-w4a8", "ct int-quantized 4-bit", 8, kGroup, CtW4A8Config, CtW4A8},
      {"ct-fp8", "ct fp8 channels", 8, kGroup, CtFp8Config, CtFp8},
      {"ct-mxfp4", "ct mxfp4", 4, kMxGroup, CtMxfp4Config, CtMxfp4},
      {"ct-nvfp4", "ct nvfp4", 4, kNvfp4Group, CtNvfp4Config, CtNvfp4},
      {"fp8-block", "fp8 blocks", 8, kGroup, Fp8BlockConfig, Fp8Block},
      {"gptq", "gptq 4-bit", 4, kGroup, GptqConfig<4, false>, Gptq<4, false>},
      {"gptq-w8", "gptq 8-bit", 8, kGroup, GptqConfig<8, false>, Gptq<8, false>},
      {"gptq-w3", "gptq 3-bit", 3, kGroup, GptqConfig<3, false>, Gptq<3, false>},
      {"gptq-w2", "gptq 2-bit", 2, kGroup, GptqConfig<2, false>, Gptq<2, false>},
      {"gptq-act-order", "gptq 4-bit act-order", 4, kGroup, GptqConfig<4, true>, Gptq<4, true>},
      {"awq", "awq gemm", 4, kGroup, AwqGemmConfig, AwqGemm},
      {"awq-gemv", "awq gemv", 4, kGemvMultiple, AwqGemvConfig, AwqGemv},
      {"awq-gemv-fast", "awq gemv_fast", 4, kGroup, AwqGemvFastConfig, AwqGemvFast},
      {"auto-round", "auto-round 4-bit", 4, kGroup, AutoRoundConfig<4>, WithoutOrder<4>},
      {"auto-round-w8", "auto-round 8-bit", 8, kGroup, AutoRoundConfig<8>, WithoutOrder<8>},
  };
  return formats;
}

const SampleFormat& StackedMxfp4() {
  static const SampleFormat format = {"gpt-oss", "gpt-oss mxfp4", 4,
                                      kMxGroup,  GptOssConfig,    NoTensors};
  return format;
}

ContentFiller::ContentFiller(const SampleTensor& tensor, uint64_t n, uint64_t k, uint64_t seed)
    : tensor_(tensor),
      n_(n),
      k_(k),
      random_(SplitMix64(seed + (Stream(tensor.content) << 56)).Next()) {}

void ContentFiller::Fill(std::span<std::byte> out) {
  const std::array<uint64_t, 2> shape = {n_, k_};
  switch (tensor_.content) {
    case Content::kCodes:
    case Content::kZeroPoints:
      return FillRandom(random_, ~uint64_t{0}, 0, out);
    case Content::kNibbles:
      return FillNibbles(random_, out);
    case Content::kExponents:  // E8M0 from 2^-7 to 2^-4, FP8 from 256 to 352
      return FillRandom(random_, 0x0303030303030303, 0x7878787878787878, out);
    case Content::kFp8Codes:  // below 2: the exponent's highest bit is off
      return FillRandom(random_, 0xBFBFBFBFBFBFBFBF, 0, out);
    case Content::kWeights:  // either sign, 2^-7 to 2^-5
      return FillRandom(random_, 0x80FF80FF80FF80FF, 0x3C003C003C003C00, out);
    case Content::kNorms:  // 1 to 2
      return FillRandom(random_, 0x007F007F007F007F, 0x3F803F803F803F80, out);
    case Content::kScales:
      return FillScales(1, out);
    case Content::kOffsets:
      return FillScales(-8, out);
    case Content::kMiddle:
      return FillMiddle(out);
    case Content::kGroups:
    case Content::kShuffledGroups:
      return FillGroups(out);
    case Content::kShape:
      std::memcpy(out.data(), shape.data(), out.size());
      return;
  }
}

void ContentFiller::FillScales(float factor, std::span<std::byte> out) {
  const size_t size = DTypeBits(tensor_.dtype) / 8;
  for (size_t i = 0; i < out.size(); i += size) {
    const auto scale = tensor_.step * static_cast<float>(0.5 + random_.Uniform());
    // A power of two times what the scale is when it is rounded.
    Store(tensor_.dtype, factor * RoundTo(tensor_.dtype, scale), out.data() + i);
  }
}

// 2^(bits - 1) - 1 in every field, lowest bits first. A piece begins at a multiple of all widths.
void ContentFiller::FillMiddle(std::span<std::byte> out) {
  std::ranges::fill(out, std::byte{0});
  for (size_t bit = 0; bit < out.size() * 8; ++bit) {
    if (bit % tensor_.bits != tensor_.bits - 1)
      out[bit / 8] |= static_cast<std::byte>(1U << bit % 8);
  }
}

void ContentFiller::FillGroups(std::span<std::byte> out) {
  std::vector<int32_t> groups(k_);
  for (uint64_t i = 0; i < k_; ++i) groups[i] = static_cast<int32_t>(i / kGroup);
  if (tensor_.content == Content::kShuffledGroups) {
    for (uint64_t i = k_ - 1; i > 0; --i) std::swap(groups[i], groups[random_.Below(i + 1)]);
  }
  std::memcpy(out.data(), groups.data(), out.size());
}

}  // namespace prepack::bench
