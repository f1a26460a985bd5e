// Every rule of every layout, with its sentence, and the values on both sides of it.

#include <cmath>
#include <set>

#include "catch.h"
#include "prepack/base/float_convert.h"
#include "prepack/layouts/table.h"

namespace prepack::testing {
namespace {

using Edit = void (*)(PackRequest&);

struct Case {
  std::string reason;  // empty: eligible
  Edit edit;
};

void Nothing(PackRequest& /*request*/) {}

void CheckCases(std::string_view id, const PackRequest& good, const std::vector<Case>& cases) {
  const Layout* layout = FindLayout(id);
  REQUIRE(layout != nullptr);
  INFO(id);
  for (const Case& c : cases) {
    PackRequest request = good;
    c.edit(request);
    const Eligibility verdict = layout->eligible(request);
    CHECK(verdict.reason == c.reason);
    CHECK(verdict.ok == c.reason.empty());
  }
}

// Of all layouts: a bias of any float dtype is taken, others are not.
const std::vector<Case> kBias = {
    {"", [](PackRequest& r) { r.bias_dtype = DType::kBF16; }},
    {"", [](PackRequest& r) { r.bias_dtype = DType::kF16; }},
    {"", [](PackRequest& r) { r.bias_dtype = DType::kF32; }},
    {"the bias is I8: it cannot be converted to what the kernel takes",
     [](PackRequest& r) { r.bias_dtype = DType::kI8; }},
    {"the bias is F64: it cannot be converted to what the kernel takes",
     [](PackRequest& r) { r.bias_dtype = DType::kF64; }}};

// Of all layouts: the order of inputs and how exact scales are make no difference.
const std::vector<Case> kFree = {{"", Nothing},
                                 {"", [](PackRequest& r) { r.reordered = true; }},
                                 {"", [](PackRequest& r) { r.exact_scales = true; }},
                                 {"", [](PackRequest& r) { r.stored_scale_dtype = DType::kF32; }}};

ActivationScheme EightBits(ActivationType type = ActivationType::kInt) {
  return {.type = type, .bits = 8};
}

PackRequest W4A16() {
  PackRequest request;
  request.scheme.group_size = 64;
  request.n = 64;
  request.k = 128;
  return request;
}

PackRequest W4A8() {
  PackRequest request = W4A16();
  request.scheme.activations = EightBits();
  return request;
}

PackRequest W8A8() {
  PackRequest request = W4A8();
  request.scheme.code = CodeType::kS8;
  request.scheme.bits = 8;
  request.scheme.granularity = Granularity::kChannel;
  request.scheme.group_size = request.k;
  return request;
}

// Blocks of 32 output by 128 input channels.
PackRequest Fp8(const ActivationScheme& activations) {
  PackRequest request = W4A16();
  request.k = 256;
  request.scheme = {.code = CodeType::kF8E4M3,
                    .bits = 8,
                    .granularity = Granularity::kBlock,
                    .group_size = 128,
                    .scale_rows = 32,
                    .activations = activations};
  return request;
}

PackRequest BF16() {
  PackRequest request = W4A16();
  request.scheme = {.code = CodeType::kBF16,
                    .bits = 16,
                    .granularity = Granularity::kTensor,
                    .group_size = request.k,
                    .scale_rows = request.n};
  return request;
}

// An expert.
PackRequest Mxfp4() {
  PackRequest request = W4A16();
  request.scheme = {
      .code = CodeType::kF4E2M1, .granularity = Granularity::kGroup, .group_size = 32};
  request.experts = 1;
  return request;
}

void SetScheme(PackRequest& request, const PackRequest& other) {
  request.scheme = other.scheme;
}

// What a layout says to codes that it does not read; all but the kind that it does.
std::vector<Case> OtherCodes(CodeType taken, std::string_view reads) {
  std::vector<Case> cases;
  const auto add = [&](std::string_view what, Edit edit) {
    cases.push_back({std::string(what) + ": the kernel reads " + std::string(reads), edit});
  };
  if (taken != CodeType::kU4) {
    add("the codes have 4 bits", [](PackRequest& r) { SetScheme(r, W4A16()); });
  }
  add("the codes have 3 bits", [](PackRequest& r) { SetScheme(r, W4A16()), r.scheme.bits = 3; });
  add("the codes have 1 bit", [](PackRequest& r) { SetScheme(r, W4A16()), r.scheme.bits = 1; });
  add("the codes have 8 bits", [](PackRequest& r) {
    SetScheme(r, W8A8());
    r.scheme.code = CodeType::kU8;
  });
  add("the codes are signed and have 6 bits", [](PackRequest& r) {
    SetScheme(r, W8A8());
    r.scheme.bits = 6;
  });
  if (taken != CodeType::kS8) {
    add("the codes are signed and have 8 bits", [](PackRequest& r) { SetScheme(r, W8A8()); });
  }
  if (taken != CodeType::kF8E4M3) {
    add("the weights are FP8", [](PackRequest& r) { SetScheme(r, Fp8({})); });
  }
  if (taken != CodeType::kF4E2M1) {
    add("the weights are FP4", [](PackRequest& r) { SetScheme(r, Mxfp4()); });
  }
  if (taken != CodeType::kBF16) {
    add("the weights are dequantized", [](PackRequest& r) { SetScheme(r, BF16()); });
  }
  return cases;
}

std::vector<Case> QuantizedActivations() {
  const std::string end = ": the kernel takes them in 16 bits (--scheme changes that)";
  return {{"activations are 8-bit int per token dynamic" + end,
           [](PackRequest& r) { r.scheme.activations = EightBits(); }},
          {"activations are 8-bit float per token dynamic" + end,
           [](PackRequest& r) { r.scheme.activations = EightBits(ActivationType::kFloat); }}};
}

// Of kernels that quantize activations per token, symmetric.
std::vector<Case> NotDynamicInt8() {
  const std::string end =
      ": the kernel quantizes them itself, to 8-bit int per token, symmetric (--scheme changes "
      "that)";
  return {
      {"activations are not quantized" + end, [](PackRequest& r) { r.scheme.activations = {}; }},
      {"activations are 8-bit float per token dynamic" + end,
       [](PackRequest& r) { r.scheme.activations = EightBits(ActivationType::kFloat); }},
      {"activations are 4-bit int per token dynamic" + end,
       [](PackRequest& r) { r.scheme.activations.bits = 4; }},
      {"activations are 8-bit int per token dynamic asymmetric" + end,
       [](PackRequest& r) { r.scheme.activations.symmetric = false; }},
      {"activations are 8-bit int per tensor static" + end,
       [](PackRequest& r) {
         r.scheme.activations.dynamic = false;
         r.scheme.activations.granularity = ActivationGranularity::kTensor;
       }},
      {"activations are 8-bit int per tensor dynamic" + end,
       [](PackRequest& r) { r.scheme.activations.granularity = ActivationGranularity::kTensor; }},
      {"activations are 8-bit int per group of 128 dynamic" + end, [](PackRequest& r) {
         r.scheme.activations.granularity = ActivationGranularity::kGroup;
         r.scheme.activations.group_size = 128;
       }}};
}

// Of kernels that take static activations, too.
std::vector<Case> SomeInt8() {
  const std::string end =
      ": the kernel takes 8-bit int per token dynamic, or per tensor static (--scheme changes "
      "that)";
  return {
      {"", [](PackRequest& r) { r.scheme.activations.symmetric = false; }},
      {"",
       [](PackRequest& r) {
         r.scheme.activations.dynamic = false;
         r.scheme.activations.granularity = ActivationGranularity::kTensor;
       }},
      {"",
       [](PackRequest& r) {
         r.scheme.activations.dynamic = false;
         r.scheme.activations.symmetric = false;
         r.scheme.activations.granularity = ActivationGranularity::kTensor;
       }},
      {"activations are 8-bit int per tensor dynamic" + end,
       [](PackRequest& r) { r.scheme.activations.granularity = ActivationGranularity::kTensor; }},
      {"activations are 8-bit int per token static" + end,
       [](PackRequest& r) { r.scheme.activations.dynamic = false; }},
      {"activations are not quantized" + end, [](PackRequest& r) { r.scheme.activations = {}; }},
      {"activations are 8-bit float per token dynamic" + end,
       [](PackRequest& r) { r.scheme.activations = EightBits(ActivationType::kFloat); }}};
}

// Of 4-bit kernels.
const std::vector<Case> kOneScalePerGroup = {
    {"", [](PackRequest& r) { r.scheme.granularity = Granularity::kChannel; }},
    {"the scales are per block: the kernel takes them per output channel, or per group of inputs",
     [](PackRequest& r) {
       r.scheme.granularity = Granularity::kBlock;
       r.scheme.scale_rows = 32;
     }},
    {"the scales are per tensor: the kernel takes them per output channel, or per group of inputs",
     [](PackRequest& r) { r.scheme.granularity = Granularity::kTensor; }}};

// Of int8 kernels.
const std::vector<Case> kOneScalePerChannel = {
    {"",
     [](PackRequest& r) {
       r.scheme.granularity = Granularity::kTensor;
       r.scheme.scale_rows = r.n;
     }},
    {"the scales are per group, 2 along K: the kernel takes one per output channel",
     [](PackRequest& r) {
       r.scheme.granularity = Granularity::kGroup;
       r.scheme.group_size = 64;
     }},
    {"the scales are per block, 1 along K: the kernel takes one per output channel",
     [](PackRequest& r) {
       r.scheme.granularity = Granularity::kBlock;
       r.scheme.scale_rows = 32;
     }}};

const std::vector<Case> kSymmetricOnly = {
    {"the weights have zero points: the kernel takes symmetric weights only",
     [](PackRequest& r) { r.scheme.symmetric = false; }}};
const std::vector<Case> kAsymmetricToo = {{"", [](PackRequest& r) { r.scheme.symmetric = false; }}};

const std::vector<Case> kGroupsDivideK = {
    {"", [](PackRequest& r) { r.k = 192, r.scheme.group_size = 48; }},
    {"groups of 48 do not divide K = 128: the kernel takes K / G as the group size, so the "
     "consumer would load it and multiply with the wrong scales",
     [](PackRequest& r) { r.scheme.group_size = 48; }}};

const std::vector<Case> kGroupsOfFours = {
    {"", [](PackRequest& r) { r.scheme.group_size = 4; }},
    {"the group size = 2 is not a multiple of 4: the kernel multiplies four input channels at a "
     "time, so the consumer would load it and compute garbage",
     [](PackRequest& r) { r.scheme.group_size = 2; }},
    {"the group size = 6 is not a multiple of 4: the kernel multiplies four input channels at a "
     "time, so the consumer would load it and compute garbage",
     [](PackRequest& r) { r.k = 96, r.scheme.group_size = 6; }}};

const std::vector<Case> kAnyN = {{"", [](PackRequest& r) { r.n = 1; }},
                                 {"", [](PackRequest& r) { r.n = 48; }}};
const std::vector<Case> kAnyK = {{"", [](PackRequest& r) { r.k = 1, r.scheme.group_size = 1; }},
                                 {"", [](PackRequest& r) { r.k = 48, r.scheme.group_size = 48; }}};

const std::vector<Case> kBf16Only = {
    {"activations are F16: the kernel takes BF16 only (--dtype changes that)",
     [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
    {"activations are F32: the kernel takes BF16 only (--dtype changes that)",
     [](PackRequest& r) { r.activation_dtype = DType::kF32; }}};
const std::vector<Case> kBf16OrAbort = {
    {"activations are F16: the kernel takes BF16 only, and without AMX the consumer would load it "
     "and end the process (--dtype changes that)",
     [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
    {"activations are F32: the kernel takes BF16 only (--dtype changes that)",
     [](PackRequest& r) { r.activation_dtype = DType::kF32; }}};
const std::vector<Case> kBf16OrF16 = {
    {"", [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
    {"activations are F32: the kernel takes BF16 or F16 only (--dtype changes that)",
     [](PackRequest& r) { r.activation_dtype = DType::kF32; }}};
const std::vector<Case> kBf16OrF32 = {
    {"", [](PackRequest& r) { r.activation_dtype = DType::kF32; }},
    {"activations are F16: the kernel takes BF16 or F32 only (--dtype changes that)",
     [](PackRequest& r) { r.activation_dtype = DType::kF16; }}};
const std::vector<Case> kAnyActivations = {
    {"", [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
    {"", [](PackRequest& r) { r.activation_dtype = DType::kF32; }}};

const std::vector<Case> kEightCodesPerWord = {
    {"", [](PackRequest& r) { r.k = 40, r.scheme.group_size = 40; }},
    {"K = 132 is not a multiple of 8: eight codes share a 32-bit word",
     [](PackRequest& r) { r.k = 132, r.scheme.group_size = 132; }}};

void CheckAll(std::string_view id, const PackRequest& good,
              std::initializer_list<std::vector<Case>> tables) {
  CheckCases(id, good, kFree);
  CheckCases(id, good, kBias);
  for (const std::vector<Case>& cases : tables) CheckCases(id, good, cases);
}

TEST_CASE("vllm-cpu/wna16 says what it takes and why not") {
  CheckAll("vllm-cpu/wna16", W4A16(),
           {OtherCodes(CodeType::kU4, "4-bit codes"),
            QuantizedActivations(),
            kAsymmetricToo,
            kOneScalePerGroup,
            kGroupsDivideK,
            kBf16OrF16,
            {{"", [](PackRequest& r) { r.n = 32, r.k = 32, r.scheme.group_size = 32; }},
             {"", [](PackRequest& r) { r.scheme.group_size = 2; }},
             {"", [](PackRequest& r) { r.scheme.group_size = r.k; }},
             {"the group size is odd: groups must hold an even number of input channels",
              [](PackRequest& r) { r.scheme.group_size = 1; }},
             {"the group size is odd: groups must hold an even number of input channels",
              [](PackRequest& r) { r.k = 96, r.scheme.group_size = 3; }},
             {"N = 80 is not a multiple of 32: the kernel takes 32 output channels at a time",
              [](PackRequest& r) { r.n = 80; }},
             {"N = 16 is not a multiple of 32: the kernel takes 32 output channels at a time",
              [](PackRequest& r) { r.n = 16; }},
             {"K = 48 is not a multiple of 32: the kernel takes 32 input channels at a time",
              [](PackRequest& r) { r.k = 48, r.scheme.group_size = 48; }}}});
}

TEST_CASE("vllm-cpu/int4-w4a8 says what it takes and why not") {
  CheckAll(
      "vllm-cpu/int4-w4a8", W4A8(),
      {OtherCodes(CodeType::kU4, "4-bit codes"),
       NotDynamicInt8(),
       kAsymmetricToo,
       kOneScalePerGroup,
       kGroupsDivideK,
       kGroupsOfFours,
       kBf16OrF16,
       {{"the layer is a Conv1D, whose weights vLLM transposes while it loads them: this layout's "
         "have three dimensions, at which it stops",
         [](PackRequest& r) { r.inputs_first = true; }}},
       {{"", [](PackRequest& r) { r.n = 32, r.k = 32, r.scheme.group_size = 32; }},
        {"N = 16 is not a multiple of 32: packed in blocks of 32 output channels",
         [](PackRequest& r) { r.n = 16; }},
        {"N = 48 is not a multiple of 32: packed in blocks of 32 output channels",
         [](PackRequest& r) { r.n = 48; }},
        {"K = 48 is not a multiple of 32: the kernel takes 32 input channels at a time",
         [](PackRequest& r) { r.k = 48, r.scheme.group_size = 48; }},
        {"", [](PackRequest& r) { r.k = 768, r.scheme.group_size = 96; }},
        {"", [](PackRequest& r) { r.k = 768, r.scheme.group_size = 128; }},
        {"", [](PackRequest& r) { r.k = 768, r.scheme.group_size = 256; }},
        {"the group size = 192 is not a multiple of 128: groups above 128 are cut into blocks of "
         "128; vLLM does not check, and the consumer would read past the scales and compute "
         "garbage",
         [](PackRequest& r) { r.k = 768, r.scheme.group_size = 192; }},
        {"", [](PackRequest& r) { r.k = 96, r.scheme.group_size = 96; }},
        {"", [](PackRequest& r) { r.k = 256, r.scheme.group_size = 256; }},
        {"K = 192 is not a multiple of 128: with one scale per output channel, K above 128 is cut "
         "into blocks of 128; vLLM does not check this, and the consumer aborts when it loads the "
         "weights",
         [](PackRequest& r) { r.k = 192, r.scheme.group_size = 192; }}}});
}

TEST_CASE("vllm-arm/int4-w4a8 says what it takes and why not") {
  PackRequest good = W4A8();
  good.scheme.group_size = 32;
  CheckCases(
      "vllm-arm/int4-w4a8", good,
      {
          {"", Nothing},
          {"", [](PackRequest& r) { r.n = 7; }},
          {"", [](PackRequest& r) { r.scheme.activations.symmetric = false; }},
          {"", [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
          {"", [](PackRequest& r) { r.activation_dtype = DType::kF32; }},
          {"", [](PackRequest& r) { r.reordered = true; }},
          {"activations are not quantized: the kernel quantizes them itself, to 8-bit int per "
           "token "
           "(--scheme changes that)",
           [](PackRequest& r) { r.scheme.activations = {}; }},
          {"the weights have zero points: the kernel takes symmetric weights only, and vLLM has no "
           "other for 4 bits on Arm (--fallback dequantize makes bf16 of them)",
           [](PackRequest& r) { r.scheme.symmetric = false; }},
          {"the group size = 16 is not a multiple of 32: the kernel multiplies 32 input channels "
           "at "
           "a time",
           [](PackRequest& r) { r.scheme.group_size = 16; }},
          {"", [](PackRequest& r) { r.k = r.scheme.group_size = 10; }},
          {"K = 9 is not a multiple of 2: the packer takes two codes per byte",
           [](PackRequest& r) { r.k = r.scheme.group_size = 9; }},
          {"groups of 96 do not divide K = 128: the kernel takes K / G as the group size, so the "
           "consumer would load it and multiply with the wrong scales",
           [](PackRequest& r) {
             r.k = 128;
             r.scheme.group_size = 96;
           }},
          {"the codes are signed and have 8 bits: the kernel reads 4-bit codes",
           [](PackRequest& r) {
             r.scheme.code = CodeType::kS8;
             r.scheme.bits = 8;
           }},
          {"", [](PackRequest& r) { r.experts = 1; }},
          {"N = 7 is not a multiple of 8: the experts of a layer are packed one after another, 8 "
           "output channels at a time",
           [](PackRequest& r) {
             r.experts = 1;
             r.n = 7;
           }},
      });
  CheckCases("vllm-arm/int4-w4a8", good, kBias);
}

// The same sizes as in every expert, of either layer.
const std::vector<Case> kExpertsOnArm = {
    {"", Nothing},
    {"", [](PackRequest& r) { r.n = 32; }},
    {"N = 48 is not a multiple of 32: the op computes 32 channels of an expert at a time",
     [](PackRequest& r) { r.n = 48; }},
    {"K = 40 is not a multiple of 32: the op computes 32 channels of an expert at a time",
     [](PackRequest& r) { r.k = r.scheme.group_size = 40; }},
    {"the module is not an expert: the op runs the experts of a mixture",
     [](PackRequest& r) { r.experts = 0; }},
    {"the module has activation order: one op runs both layers of an expert, and nobody could "
     "reorder the inputs of the second",
     [](PackRequest& r) { r.reordered = true; }},
};

TEST_CASE("vllm-arm/int8-neon says what it takes and why not") {
  PackRequest good = W8A8();
  good.experts = 1;
  CheckCases("vllm-arm/int8-neon", good, kExpertsOnArm);
  CheckCases("vllm-arm/int8-neon", good, NotDynamicInt8());
  CheckCases("vllm-arm/int8-neon", good, kSymmetricOnly);
  CheckCases("vllm-arm/int8-neon", good, kOneScalePerChannel);
  CheckCases("vllm-arm/int8-neon", good, kBias);
  CheckCases("vllm-arm/int8-neon", good,
             {{"", [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
              {"", [](PackRequest& r) { r.activation_dtype = DType::kF32; }},
              {"the codes have 4 bits: the kernel reads signed 8-bit codes",
               [](PackRequest& r) { SetScheme(r, W4A16()); }}});
}

TEST_CASE("vllm-arm/bf16-neon says what it takes and why not") {
  PackRequest good = BF16();
  good.experts = 1;
  CheckCases("vllm-arm/bf16-neon", good, kExpertsOnArm);
  CheckCases("vllm-arm/bf16-neon", good, kBf16Only);
  CheckCases("vllm-arm/bf16-neon", good, kBias);
  CheckCases("vllm-arm/bf16-neon", good,
             {{"the codes have 4 bits: the kernel reads bf16 weights (--fallback dequantize makes "
               "them for modules that no other layout takes)",
               [](PackRequest& r) { SetScheme(r, W4A16()); }}});
}

TEST_CASE("vllm-cpu/int8-vnni says what it takes and why not") {
  CheckAll("vllm-cpu/int8-vnni", W8A8(),
           {OtherCodes(CodeType::kS8, "signed 8-bit codes"),
            NotDynamicInt8(),
            kSymmetricOnly,
            kOneScalePerChannel,
            kBf16OrAbort,
            {{"", [](PackRequest& r) { r.n = 32, r.k = 32, r.scheme.group_size = 32; }},
             {"N = 16 is not a multiple of 32: packed in blocks of 32 output channels; vLLM "
              "accepts multiples "
              "of 16, and its packer then aborts",
              [](PackRequest& r) { r.n = 16; }},
             {"N = 48 is not a multiple of 32: packed in blocks of 32 output channels; vLLM "
              "accepts multiples "
              "of 16, and its packer then aborts",
              [](PackRequest& r) { r.n = 48; }},
             {"K = 48 is not a multiple of 32: packed 32 input channels at a time",
              [](PackRequest& r) { r.k = 48, r.scheme.group_size = 48; }}}});
}

TEST_CASE("vllm-cpu/int8-plain says what it takes and why not") {
  CheckAll("vllm-cpu/int8-plain", W8A8(),
           {OtherCodes(CodeType::kS8, "signed 8-bit codes"), SomeInt8(), kSymmetricOnly,
            kOneScalePerChannel, kAnyActivations, kAnyN, kAnyK});
}

TEST_CASE("vllm-arm/int8-plain says what it takes and why not") {
  CheckAll("vllm-arm/int8-plain", W8A8(),
           {OtherCodes(CodeType::kS8, "signed 8-bit codes"), SomeInt8(), kSymmetricOnly,
            kOneScalePerChannel, kAnyActivations, kAnyN});
  CheckCases("vllm-arm/int8-plain", W8A8(),
             {{"", [](PackRequest& r) { r.k = r.scheme.group_size = 80; }},
              {"K = 72 is not a multiple of 16: vLLM's quantizer for Arm looks for the range of a "
               "token 16 channels at a time, and takes another one where some are left over, so it "
               "would compute garbage",
               [](PackRequest& r) { r.k = r.scheme.group_size = 72; }},
              {"", [](PackRequest& r) {
                 r.k = r.scheme.group_size = 72;
                 r.scheme.activations.dynamic = false;
                 r.scheme.activations.granularity = ActivationGranularity::kTensor;
               }}});
}

TEST_CASE("vllm-cpu/fp8-vnni says what it takes and why not") {
  CheckAll(
      "vllm-cpu/fp8-vnni", Fp8({}),
      {OtherCodes(CodeType::kF8E4M3, "FP8 (e4m3) weights"),
       QuantizedActivations(),
       kBf16OrAbort,
       {{"",
         [](PackRequest& r) {
           r.scheme.granularity = Granularity::kTensor;
           r.scheme.group_size = r.k;
           r.scheme.scale_rows = r.n;
         }},
        {"",
         [](PackRequest& r) {
           r.scheme.granularity = Granularity::kChannel;
           r.scheme.group_size = r.k;
           r.scheme.scale_rows = 1;
         }},
        {"", [](PackRequest& r) { r.scheme.scale_rows = 64; }},
        {"", [](PackRequest& r) { r.k = 160; }},
        {"the scales are per block of 64 input channels: the kernel applies one scale per 128 of "
         "them, for 32 output channels or more",
         [](PackRequest& r) { r.scheme.group_size = 64; }},
        {"the scales are per block of 256 input channels: the kernel applies one scale per 128 of "
         "them, for 32 output channels or more",
         [](PackRequest& r) { r.scheme.group_size = 256; }},
        {"the scales are per group of 128 input channels: the kernel applies one scale per 128 of "
         "them, for 32 output channels or more",
         [](PackRequest& r) {
           r.scheme.granularity = Granularity::kGroup;
           r.scheme.scale_rows = 1;
         }},
        {"the number of output channels per scale = 48 is not a multiple of 32: the kernel applies "
         "one scale per 32 output channels",
         [](PackRequest& r) { r.scheme.scale_rows = 48; }},
        {"the number of output channels per scale = 16 is not a multiple of 32: the kernel applies "
         "one scale per 32 output channels",
         [](PackRequest& r) { r.scheme.scale_rows = 16; }},
        {"N = 16 is not a multiple of 32: packed in blocks of 32 output channels; vLLM asks for 16 "
         "only, and then the process can abort",
         [](PackRequest& r) { r.n = 16; }},
        {"N = 48 is not a multiple of 32: packed in blocks of 32 output channels; vLLM asks for 16 "
         "only, and then the process can abort",
         [](PackRequest& r) { r.n = 48; }},
        {"K = 48 is not a multiple of 32: packed 32 input channels at a time",
         [](PackRequest& r) { r.k = 48; }}}});
}

TEST_CASE("vllm-cpu/fp8-w8a8 says what it takes and why not") {
  const std::string not_fp8 =
      "activations are not FP8 at run time: the kernel quantizes them so (--scheme w8a8 asks for "
      "it)";
  for (const std::string_view id : {"vllm-cpu/fp8-w8a8-vnni4", "vllm-cpu/fp8-w8a8-plain"}) {
    CheckAll(
        id, Fp8(EightBits(ActivationType::kFloat)),
        {OtherCodes(CodeType::kF8E4M3, "FP8 (e4m3) weights"),
         kBf16Only,
         {{not_fp8, [](PackRequest& r) { r.scheme.activations = {}; }},
          {not_fp8, [](PackRequest& r) { r.scheme.activations.dynamic = false; }},
          {not_fp8, [](PackRequest& r) { r.scheme.activations = EightBits(); }},
          {"",
           [](PackRequest& r) {
             r.k = 96;
             r.scheme.granularity = Granularity::kTensor;
             r.scheme.group_size = r.k;
             r.scheme.scale_rows = r.n;
           }},
          {"", [](PackRequest& r) { r.scheme.group_size = 32; }},
          {"", [](PackRequest& r) { r.k = 512, r.scheme.group_size = 256; }},
          {"", [](PackRequest& r) { r.scheme.group_size = 4; }},
          {"N = 16 is not a multiple of 32: packed in blocks of 32 output channels",
           [](PackRequest& r) { r.n = 16; }},
          {"N = 48 is not a multiple of 32: packed in blocks of 32 output channels",
           [](PackRequest& r) { r.n = 48; }},
          {"K = 48 is not a multiple of 32: the activation quantizer leaves the rest of a row as "
           "it was, and the consumer would compute garbage",
           [](PackRequest& r) { r.k = 48, r.scheme.group_size = 48; }},
          {"groups of 128 do not divide K = 160: the kernel takes K / G as the group size, so the "
           "consumer would load it and multiply with the wrong scales",
           [](PackRequest& r) { r.k = 160; }},
          {"the block of input channels = 2 is not a multiple of 4: packed four at a time; the "
           "consumer's packer writes past its buffer otherwise",
           [](PackRequest& r) { r.scheme.group_size = 2; }},
          {"the group size = 192 is not a multiple of 128: blocks of so many input channels have "
           "one scale each; the op refuses others",
           [](PackRequest& r) { r.k = 384, r.scheme.group_size = 192; }}}});
  }
}

TEST_CASE("vllm-cpu/mxfp4 says what it takes and why not") {
  CheckCases("vllm-cpu/mxfp4", Mxfp4(), OtherCodes(CodeType::kF4E2M1, "FP4 (e2m1) weights"));
  CheckCases("vllm-cpu/mxfp4", Mxfp4(), QuantizedActivations());
  CheckCases("vllm-cpu/mxfp4", Mxfp4(), kBias);
  CheckCases(
      "vllm-cpu/mxfp4", Mxfp4(),
      {{"", Nothing},
       {"", [](PackRequest& r) { r.exact_scales = true; }},
       {"the module is not an expert: the op runs the experts of a mixture, and no other CPU "
        "kernel "
        "reads such weights (--fallback dequantize makes bf16 of them)",
        [](PackRequest& r) { r.experts = 0; }},
       {"one scale is for 16 input channels: the kernel takes MXFP4, where one power of two is for "
        "32",
        [](PackRequest& r) { r.scheme.group_size = 16; }},
       {"", [](PackRequest& r) { r.n = 32; }},
       {"N = 48 is not a multiple of 32: packed in blocks of 32 output channels",
        [](PackRequest& r) { r.n = 48; }},
       {"", [](PackRequest& r) { r.k = 2880; }},
       {"K = 144 is not a multiple of 32: the kernel takes 32 input channels at a time",
        [](PackRequest& r) { r.k = 144; }},
       {"the module has activation order: one op runs both layers of an expert, and nobody could "
        "reorder the inputs of the second",
        [](PackRequest& r) { r.reordered = true; }},
       {"activations are F16: the kernel takes BF16 only, and without AMX the consumer would load "
        "it and end the process (--dtype changes that)",
        [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
       {"activations are F32: the kernel takes BF16 only (--dtype changes that)",
        [](PackRequest& r) { r.activation_dtype = DType::kF32; }}});
}

// What the real op computed of a single weight, for every exponent and code.
TEST_CASE("vllm-cpu/mxfp4 knows which scales its kernel misreads") {
  const ScaleLimits& limits = kVllmMxfp4.scale_limits;
  const auto wrong = [&](int exponent) {
    std::set<float> magnitudes;
    for (uint8_t code = 0; code < 16; ++code) {
      if (!limits.misreads(std::ldexp(1.0F, exponent - 127), code)) continue;
      magnitudes.insert(std::abs(F4E2M1ToF32(code)));
    }
    return magnitudes;
  };
  for (int exponent = 2; exponent <= 252; ++exponent) {
    const float scale = std::ldexp(1.0F, exponent - 127);
    CHECK(wrong(exponent).empty());
    CHECK((scale >= limits.least && scale <= limits.most));
  }
  CHECK(std::ldexp(1.0F, 1 - 127) < limits.least);
  CHECK(std::ldexp(1.0F, 253 - 127) > limits.most);
  CHECK(wrong(0) == std::set<float>{0.5F, 1, 1.5F});
  CHECK(wrong(1) == std::set<float>{0.5F});
  CHECK(wrong(253) == std::set<float>{4, 6});
  CHECK(wrong(254) == std::set<float>{2, 3, 4, 6});
}

TEST_CASE("vllm-cpu/bf16-vnni says what it takes and why not") {
  CheckAll("vllm-cpu/bf16-vnni", BF16(),
           {OtherCodes(CodeType::kBF16,
                       "bf16 weights (--fallback dequantize makes them for modules that no other "
                       "layout takes)"),
            kBf16Only,
            // The plug-in undoes what vLLM does to the weights of a Conv1D.
            {{"", [](PackRequest& r) { r.inputs_first = true; }},
             {"", [](PackRequest& r) { r.n = 32, r.k = 32; }},
             {"N = 48 is not a multiple of 32: packed in blocks of 32 output channels",
              [](PackRequest& r) { r.n = 48; }},
             {"K = 48 is not a multiple of 32: packed 32 input channels at a time",
              [](PackRequest& r) { r.k = 48; }}}});
}

TEST_CASE("plain/bf16 says what it takes and why not") {
  CheckAll(
      "plain/bf16", BF16(),
      {OtherCodes(CodeType::kBF16,
                  "bf16 weights (--fallback dequantize makes them for modules that no other layout "
                  "takes)"),
       kAnyActivations,
       kAnyN,
       kAnyK,
       {{"the layer is a Conv1D, whose loaders transpose a plain weight: plain/bf16-conv1d stores "
         "it as they expect it",
         [](PackRequest& r) { r.inputs_first = true; }}}});
}

TEST_CASE("nothing but a plain weight holds an embedding") {
  PackRequest embedding = BF16();
  embedding.embedding = true;
  for (const LayoutTable& table : {AllLayouts(), CheckpointLayouts()}) {
    for (const Layout& layout : table) {
      INFO(layout.id);
      const Eligibility verdict = layout.Takes(embedding);
      CHECK(verdict.ok == (layout.id == "plain/bf16"));
      CHECK(verdict.reason.starts_with("the module is an embedding, which ") == !verdict.ok);
    }
  }
}

TEST_CASE("plain/bf16-conv1d says what it takes and why not") {
  PackRequest conv1d = BF16();
  conv1d.inputs_first = true;
  CheckAll("plain/bf16-conv1d", conv1d,
           {OtherCodes(CodeType::kBF16,
                       "bf16 weights (--fallback dequantize makes them for modules that no other "
                       "layout takes)"),
            kAnyActivations,
            kAnyN,
            kAnyK,
            {{"the layer is not a Conv1D: its plain weight is stored [N, K]",
              [](PackRequest& r) { r.inputs_first = false; }}}});
}

TEST_CASE("zentorch/woq says what it takes and why not") {
  CheckAll("zentorch/woq", W4A16(),
           {OtherCodes(CodeType::kU4, "4-bit codes"),
            QuantizedActivations(),
            kAsymmetricToo,
            kOneScalePerGroup,
            kEightCodesPerWord,
            kGroupsDivideK,
            kBf16Only,
            kAnyN,
            {{"", [](PackRequest& r) { r.scheme.group_size = 1; }}}});
}

TEST_CASE("zentorch/da8w4 says what it takes and why not") {
  CheckAll(
      "zentorch/da8w4", W4A8(),
      {OtherCodes(CodeType::kU4, "4-bit codes"), NotDynamicInt8(), kSymmetricOnly,
       kOneScalePerGroup, kEightCodesPerWord, kGroupsDivideK, kGroupsOfFours, kBf16Only, kAnyN});
}

TEST_CASE("zentorch/int8 says what it takes and why not") {
  for (const std::string_view id : {"zentorch/int8", "zentorch/int8-dlp"}) {
    CheckAll(id, W8A8(),
             {OtherCodes(CodeType::kS8, "signed 8-bit codes"), NotDynamicInt8(), kSymmetricOnly,
              kOneScalePerChannel, kBf16OrF32, kAnyN, kAnyK});
  }
}

const std::vector<Case> kOneDnnW4 = {
    {"", [](PackRequest& r) { r.n = 2; }},
    {"N = 7 is not a multiple of 2: two output channels share a byte",
     [](PackRequest& r) { r.n = 7; }},
    {"", [](PackRequest& r) { r.scheme.group_size = 16; }},
    {"", [](PackRequest& r) { r.k = 9, r.scheme.group_size = 9; }},
    {"the group size is not a multiple of 16: oneDNN's matmul takes such groups, or one for all "
     "of K",
     [](PackRequest& r) { r.scheme.group_size = 8; }},
    {"the group size is not a multiple of 16: oneDNN's matmul takes such groups, or one for all "
     "of K",
     [](PackRequest& r) { r.k = 48, r.scheme.group_size = 24; }}};

TEST_CASE("onednn/w4a16 says what it takes and why not") {
  CheckAll("onednn/w4a16", W4A16(),
           {OtherCodes(CodeType::kU4, "4-bit codes"), QuantizedActivations(), kAsymmetricToo,
            kOneScalePerGroup, kGroupsDivideK, kBf16OrF32, kOneDnnW4});
}

TEST_CASE("onednn/w4a8 says what it takes and why not") {
  CheckAll("onednn/w4a8", W4A8(),
           {OtherCodes(CodeType::kU4, "4-bit codes"), NotDynamicInt8(), kAsymmetricToo,
            kOneScalePerGroup, kGroupsDivideK, kAnyActivations, kOneDnnW4});
}

TEST_CASE("onednn/w8a8 says what it takes and why not") {
  CheckAll("onednn/w8a8", W8A8(),
           {OtherCodes(CodeType::kS8, "signed 8-bit codes"), SomeInt8(), kSymmetricOnly,
            kOneScalePerChannel, kAnyActivations, kAnyN, kAnyK});
}

PackRequest KtExpert(PackRequest request) {
  request.experts = 1;
  return request;
}

// What the layouts of kt-kernel refuse alike.
const std::vector<Case> kKtExperts = {
    {"", Nothing},
    {"", [](PackRequest& r) { r.n = 32; }},
    {"N = 48 is not a multiple of 32: packed in steps of 32 output channels",
     [](PackRequest& r) { r.n = 48; }},
    {"the module is not an expert: kt-kernel runs the experts of a mixture, and the rest of the "
     "model runs elsewhere, from the original checkpoint",
     [](PackRequest& r) { r.experts = 0; }},
    {"the module has activation order: one op runs both layers of an expert, and nobody could "
     "reorder the inputs of the second",
     [](PackRequest& r) { r.reordered = true; }},
    {"the module has a bias: the kernel adds none",
     [](PackRequest& r) { r.bias_dtype = DType::kBF16; }},
    {"kt-kernel has no name for it: it knows gate_proj, up_proj and down_proj (w1, w3, w2) of "
     "the experts of a decoder's layers, each expert by itself",
     [](PackRequest& r) { r.unnamed = true; }},
    {"another expert of the layer cannot be packed, or is missing: kt-kernel reads all experts "
     "of a layer or none",
     [](PackRequest& r) { r.mixture_fault = MixtureFault::kIncomplete; }},
    {"other experts of the model have codes of another width: kt-kernel reads all with one method, "
     "AMXINT8 or AMXINT4",
     [](PackRequest& r) { r.mixture_fault = MixtureFault::kOtherLayout; }}};

TEST_CASE("kt/amxint8 says what it takes and why not") {
  const std::string reads = ": the kernel reads signed 8-bit codes";
  const PackRequest expert = KtExpert(W8A8());
  for (const auto& cases :
       {kOneScalePerChannel, kSymmetricOnly, NotDynamicInt8(), kBf16Only, kKtExperts}) {
    CheckCases("kt/amxint8", expert, cases);
  }
  CheckCases(
      "kt/amxint8", expert,
      {{"", [](PackRequest& r) { r.k = 64, r.scheme.group_size = 64; }},
       {"K = 96 is not a multiple of 64: packed 64 input channels at a time",
        [](PackRequest& r) { r.k = 96, r.scheme.group_size = 96; }},
       {"the codes have 4 bits" + reads, [](PackRequest& r) { SetScheme(r, W4A16()); }},
       {"the weights are FP8" + reads, [](PackRequest& r) { SetScheme(r, Fp8({})); }},
       {"the codes have 8 bits" + reads, [](PackRequest& r) { r.scheme.code = CodeType::kU8; }}});
}

PackRequest KtInt4Expert() {
  PackRequest expert = KtExpert(W4A8());
  expert.k = 128;
  expert.scheme.granularity = Granularity::kChannel;
  expert.scheme.group_size = expert.k;
  return expert;
}

TEST_CASE("kt/amxint4 says what it takes and why not") {
  const std::string reads = ": the kernel reads 4-bit codes";
  for (const auto& cases : {kSymmetricOnly, NotDynamicInt8(), kBf16Only, kKtExperts}) {
    CheckCases("kt/amxint4", KtInt4Expert(), cases);
  }
  CheckCases(
      "kt/amxint4", KtInt4Expert(),
      {{"", [](PackRequest& r) { r.scheme.granularity = Granularity::kTensor; }},
       {"", [](PackRequest& r) { r.k = 384, r.scheme.group_size = 384; }},
       {"K = 192 is not a multiple of 128: packed 128 input channels at a time",
        [](PackRequest& r) { r.k = 192, r.scheme.group_size = 192; }},
       {"the scales are per group, 4 along K: the kernel takes one per output channel. kt-kernel "
        "reads symmetric 4-bit experts in groups with bf16 scales from a checkpoint of "
        "compressed-tensors itself (--kt-method RAWINT4), which --target compressed-tensors makes "
        "of AWQ, GPTQ and AutoRound",
        [](PackRequest& r) {
          r.scheme.granularity = Granularity::kGroup;
          r.scheme.group_size = 32;
        }},
       {"the weights are FP8" + reads +
            ". kt-kernel reads FP8 experts from the checkpoint itself (--kt-method FP8 for blocks "
            "of 128 x 128, FP8_PERCHANNEL for one scale per channel)",
        [](PackRequest& r) { SetScheme(r, Fp8({})); }},
       {"the weights are FP4" + reads +
            ". kt-kernel reads MXFP4 experts of DeepSeek V4 and NVFP4 experts of ModelOpt from the "
            "checkpoint itself (--kt-method MXFP4, NVFP4)",
        [](PackRequest& r) { SetScheme(r, Mxfp4()); }},
       {"the codes are signed and have 8 bits" + reads,
        [](PackRequest& r) { SetScheme(r, W8A8()); }}});
}

}  // namespace
}  // namespace prepack::testing
