#include "prepack/layouts/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace prepack {
namespace {

std::string Names(std::initializer_list<DType> dtypes) {
  std::string text;
  for (const DType dtype : dtypes) {
    if (!text.empty()) text += " or ";
    text += DTypeName(dtype);
  }
  return text;
}

// "the codes have 3 bits", "the weights are FP8".
std::string DescribeCodes(const Scheme& scheme) {
  switch (scheme.code) {
    case CodeType::kF8E4M3:
      return "the weights are FP8";
    case CodeType::kF4E2M1:
      return "the weights are FP4";
    case CodeType::kBF16:
      return "the weights are dequantized";
    case CodeType::kS8:
      return fmt::format("the codes are signed and have {} bits", scheme.bits);
    case CodeType::kU4:
    case CodeType::kU8:
      break;
  }
  return fmt::format("the codes have {} bit{}", scheme.bits, scheme.bits == 1 ? "" : "s");
}

// `takes`: "the kernel reads".
Eligibility OtherCodes(const PackRequest& request, std::string_view takes,
                       std::string_view wanted) {
  const std::string codes = DescribeCodes(request.scheme);
  return {.ok = false,
          .reason = fmt::format("{}: {} {}", codes, takes, wanted),
          .other_weights = true,
          .codes = codes,
          .kernel_reads = std::string(wanted)};
}

Eligibility CodesAre(const PackRequest& request, CodeType code, uint32_t bits,
                     std::string_view wanted) {
  if (request.scheme.code == code && request.scheme.bits == bits) return Eligibility::Yes();
  return OtherCodes(request, "the kernel reads", wanted);
}

std::string DescribeWanted(const ActivationScheme& activations) {
  if (activations.type == ActivationType::kNone) return "activations are not quantized";
  return fmt::format("activations are {}", DescribeActivations(activations));
}

bool IsInt8(const ActivationScheme& activations) {
  return activations.type == ActivationType::kInt && activations.bits == 8;
}

bool IsPerToken(const ActivationScheme& activations) {
  return activations.dynamic && activations.granularity == ActivationGranularity::kToken;
}

bool IsStaticTensor(const ActivationScheme& activations) {
  return !activations.dynamic && activations.granularity == ActivationGranularity::kTensor;
}

}  // namespace

Eligibility AllOf(std::initializer_list<Eligibility> verdicts) {
  for (const Eligibility& verdict : verdicts) {
    if (!verdict.ok) return verdict;
  }
  return Eligibility::Yes();
}

Eligibility FourBitCodes(const PackRequest& request) {
  return CodesAre(request, CodeType::kU4, 4, "4-bit codes");
}

Eligibility SignedByteCodes(const PackRequest& request) {
  return CodesAre(request, CodeType::kS8, 8, "signed 8-bit codes");
}

Eligibility Fp8Codes(const PackRequest& request) {
  return CodesAre(request, CodeType::kF8E4M3, 8, "FP8 (e4m3) weights");
}

Eligibility Fp4Codes(const PackRequest& request) {
  return CodesAre(request, CodeType::kF4E2M1, 4, "FP4 (e2m1) weights");
}

Eligibility DequantizedWeights(const PackRequest& request) {
  return CodesAre(
      request, CodeType::kBF16, 16,
      "bf16 weights (--fallback dequantize makes them for modules that no other layout takes)");
}

Eligibility SymmetricWeights(const PackRequest& request) {
  if (request.scheme.symmetric) return Eligibility::Yes();
  return Eligibility::No("the weights have zero points: the kernel takes symmetric weights only");
}

Eligibility WideActivations(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  if (activations.type == ActivationType::kNone) return Eligibility::Yes();
  return Eligibility::No(fmt::format("{}: the kernel takes them in 16 bits (--scheme changes that)",
                                     DescribeWanted(activations)));
}

Eligibility DynamicInt8Activations(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  if (IsInt8(activations) && IsPerToken(activations) && activations.symmetric) {
    return Eligibility::Yes();
  }
  return Eligibility::No(
      fmt::format("{}: the kernel quantizes them itself, to 8-bit int per token, symmetric "
                  "(--scheme changes that)",
                  DescribeWanted(activations)));
}

Eligibility Int8Activations(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  if (IsInt8(activations) && (IsPerToken(activations) || IsStaticTensor(activations))) {
    return Eligibility::Yes();
  }
  return Eligibility::No(
      fmt::format("{}: the kernel takes 8-bit int per token dynamic, or per tensor static "
                  "(--scheme changes that)",
                  DescribeWanted(activations)));
}

Eligibility Int8ActivationsPerToken(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  if (IsInt8(activations) && IsPerToken(activations)) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("{}: the kernel quantizes them itself, to 8-bit int per token (--scheme changes "
                  "that)",
                  DescribeWanted(activations)));
}

Eligibility ScalesPerChannelOrGroup(const PackRequest& request) {
  const Granularity granularity = request.scheme.granularity;
  if (granularity == Granularity::kChannel || granularity == Granularity::kGroup) {
    return Eligibility::Yes();
  }
  return Eligibility::No(fmt::format(
      "the scales are per {}: the kernel takes them per output channel, or per group of inputs",
      GranularityName(granularity)));
}

Eligibility ScalesPerChannelOrTensor(const PackRequest& request) {
  const uint64_t groups = request.groups();
  if (groups == 1 && request.scheme.granularity != Granularity::kBlock) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("the scales are per {}, {} along K: the kernel takes one per output channel",
                  GranularityName(request.scheme.granularity), groups));
}

Eligibility MultipleOf(std::string_view name, uint64_t value, uint64_t unit, std::string_view why) {
  if (value % unit == 0) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("{} = {} is not a multiple of {}: {}", name, value, unit, why));
}

Eligibility GroupsDivideK(const PackRequest& request) {
  if (request.k % request.scheme.group_size == 0) return Eligibility::Yes();
  return Eligibility::No(fmt::format(
      "groups of {} do not divide K = {}: the kernel takes K / G as the group size, so the "
      "consumer would load it and multiply with the wrong scales",
      request.scheme.group_size, request.k));
}

Eligibility GroupsOfFours(const PackRequest& request) {
  return MultipleOf("the group size", request.scheme.group_size, 4,
                    "the kernel multiplies four input channels at a time, so the consumer "
                    "would load it and compute garbage");
}

Eligibility ExpertsOnly(const PackRequest& request) {
  if (request.expert()) return Eligibility::Yes();
  return Eligibility::No(
      "the module is not an expert: the op runs the experts of a mixture, and no other CPU kernel "
      "reads such weights (--fallback dequantize makes bf16 of them)");
}

Eligibility InputsInOrder(const PackRequest& request) {
  if (!request.reordered) return Eligibility::Yes();
  return Eligibility::No(
      "the module has activation order: one op runs both layers of an expert, and nobody could "
      "reorder the inputs of the second");
}

Eligibility ActivationsOneOf(const PackRequest& request, std::initializer_list<DType> allowed) {
  if (std::ranges::find(allowed, request.activation_dtype) != allowed.end()) {
    return Eligibility::Yes();
  }
  return Eligibility::No(
      fmt::format("activations are {}: the kernel takes {} only (--dtype changes that)",
                  DTypeName(request.activation_dtype), Names(allowed)));
}

Eligibility ActivationsBf16OrAbort(const PackRequest& request) {
  if (request.activation_dtype != DType::kF16) return ActivationsOneOf(request, {DType::kBF16});
  return Eligibility::No(
      "activations are F16: the kernel takes BF16 only, and without AMX the consumer would load it "
      "and end the process (--dtype changes that)");
}

Eligibility BiasIsFloat(const PackRequest& request) {
  if (!request.bias_dtype) return Eligibility::Yes();
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    if (*request.bias_dtype == dtype) return Eligibility::Yes();
  }
  return Eligibility::No(
      fmt::format("the bias is {}: it cannot be converted to what the kernel "
                  "takes",
                  DTypeName(*request.bias_dtype)));
}

Eligibility IntegerCodes(const PackRequest& request, std::initializer_list<uint32_t> widths,
                         std::string_view wanted) {
  const Scheme& scheme = request.scheme;
  const bool is_integer =
      scheme.code == CodeType::kU4 || scheme.code == CodeType::kU8 || scheme.code == CodeType::kS8;
  return CodesOf(request, is_integer && std::ranges::find(widths, scheme.bits) != widths.end(),
                 wanted);
}

Eligibility CodesOf(const PackRequest& request, bool are_wanted, std::string_view wanted) {
  return are_wanted ? Eligibility::Yes() : OtherCodes(request, "the format stores", wanted);
}

Eligibility NoActivations(const PackRequest& request, std::string_view format) {
  const ActivationScheme& activations = request.scheme.activations;
  if (activations.type == ActivationType::kNone) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("{}: {} cannot say so, and its readers would not quantize them",
                  DescribeWanted(activations), format));
}

Eligibility NoBlocks(const PackRequest& request, std::string_view format) {
  if (request.scheme.granularity != Granularity::kBlock) return Eligibility::Yes();
  return Eligibility::No(fmt::format(
      "the scales are per block of {} x {}: {} has one per output channel and group of inputs",
      request.scheme.scale_rows, request.scheme.group_size, format));
}

Eligibility WholeGroups(const PackRequest& request, std::string_view format) {
  if (request.k % request.scheme.group_size == 0) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("groups of {} do not divide K = {}: {} has no short last group",
                  request.scheme.group_size, request.k, format));
}

Eligibility NoOrder(const PackRequest& request, std::string_view format) {
  if (!request.reordered) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("the module has activation order: {} has no index of groups", format));
}

Eligibility OrderOfGroups(const PackRequest& request) {
  if (!request.reordered || request.scheme.granularity == Granularity::kGroup) {
    return Eligibility::Yes();
  }
  return Eligibility::No("activation order without groups of inputs means nothing");
}

Eligibility ZerosAreCodes(const PackRequest& request, std::string_view format) {
  if (!request.facts.has_zero_beyond) return Eligibility::Yes();
  return Eligibility::No(fmt::format(
      "a zero point is {}: {} stores zero points of {} bits, up to {}", 1U << request.scheme.bits,
      format, request.scheme.bits, (1U << request.scheme.bits) - 1));
}

Eligibility ZerosAboveZero(const PackRequest& request, std::string_view format) {
  if (!request.facts.has_zero_of_zero) return Eligibility::Yes();
  return Eligibility::No(fmt::format(
      "a zero point is 0: {} stores zero points less one, 1 to {} (target gptq-v2 stores them as "
      "they are)",
      format, 1U << request.scheme.bits));
}

Eligibility ScalesOfHalf(const PackRequest& request, std::string_view format) {
  if (!request.facts.has_scale_beyond_half) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("F16 does not hold the scales, which are F32: {} has scales of 16 bits", format));
}

Eligibility OutputsFirst(const PackRequest& request, std::string_view format) {
  if (!request.inputs_first) return Eligibility::Yes();
  return Eligibility::No(fmt::format(
      "the model's class (Conv1D) has its weight [K, N]: {} stores linear layers, [N, K]", format));
}

namespace {

constexpr std::string_view kZen = "AMD with AVX-512 and zentorch";
constexpr std::string_view kAmx = "AMX";
constexpr std::string_view kBf16 = "AVX-512 with BF16";
constexpr std::string_view kAvx512 = "AVX-512 without BF16";
constexpr std::string_view kAvx2 = "AVX2";

constexpr std::string_view kEightBits = "8-bit activations although the checkpoint says 16";
constexpr std::string_view kNoKernel = "none: it refuses to load";
constexpr std::string_view kHandler = "oneDNN matmul on plain weights";

bool Is16Bit(const Scheme& scheme) {
  return scheme.activations.type == ActivationType::kNone;
}

bool IsDynamicPerChannel(const Scheme& scheme) {
  return scheme.activations.dynamic && scheme.activations.symmetric &&
         scheme.granularity == Granularity::kChannel;
}

std::vector<RuntimeChoice> FourBits(std::string_view format, const PackRequest& request) {
  const Scheme& source = request.scheme;
  if (!Is16Bit(source)) return {};  // not known
  if (request.reordered) {
    return {{"any", kNoKernel, "vLLM's CPU kernels have no activation order"}};
  }
  const bool ct = format == "compressed-tensors";
  const bool fours = source.symmetric && source.group_size % 4 == 0;
  RuntimeChoice zen{kZen, "vllm-cpu/wna16", ""};
  if (ct && fours) {
    zen = {kZen, "zentorch/da8w4", kEightBits};
  } else if (ct) {
    zen = {kZen, "zentorch/woq", ""};
  }
  RuntimeChoice amx{kAmx, "vllm-cpu/int4-w4a8", kEightBits};
  if (request.activation_dtype == DType::kF16) amx = {kAmx, "vllm-cpu/wna16", ""};
  return {zen,
          amx,
          {kBf16, "vllm-cpu/wna16", ""},
          {kAvx512, "vllm-cpu/wna16", "weights and results are truncated to bf16, not rounded"},
          {kAvx2, kNoKernel, "its library for AVX2 lacks the op"}};
}

std::vector<RuntimeChoice> EightBits(const Scheme& source) {
  if (Is16Bit(source)) return {{"any", kNoKernel, "no CPU kernel exists for it"}};
  RuntimeChoice zen{kZen, kHandler, ""};
  if (IsDynamicPerChannel(source)) zen = {kZen, "zentorch/int8", ""};
  RuntimeChoice amx{kAmx, kHandler, ""};
  if (source.activations.symmetric) {
    amx = {kAmx, "vllm-cpu/int8-vnni",
           source.activations.dynamic ? "" : "the static scale of activations is ignored"};
  }
  return {zen, amx, {"others", kHandler, ""}};
}

std::vector<RuntimeChoice> Fp8(const Scheme& source) {
  constexpr std::string_view kWide = "16-bit activations, whatever the checkpoint says";
  constexpr std::string_view kFrom033 =
      "16-bit activations, whatever the checkpoint says; vLLM 0.32: plain torch";
  const bool blocks = source.granularity == Granularity::kBlock;
  if (source.granularity == Granularity::kGroup) {
    return {{"any", kNoKernel, "no CPU kernel exists for FP8 with scales per group"}};
  }
  const bool channels = source.granularity == Granularity::kChannel;
  return {{"AMX with FP8", "vllm-cpu/fp8-w8a8-vnni4", ""},
          {kAmx, "vllm-cpu/fp8-vnni", channels ? kFrom033 : kWide},
          {"others", blocks ? kNoKernel : "plain torch", ""}};
}

// Its op for experts also runs on CPUs with AVX-512 and BF16, but the runtime asks for AMX.
std::vector<RuntimeChoice> Fp4(std::string_view format, const PackRequest& source) {
  if (!source.expert()) {
    return {{"any", kNoKernel, "no CPU kernel exists for FP4 weights of single linear layers"}};
  }
  if (source.scheme.group_size != 32) {
    return {{"any", kNoKernel, "no CPU kernel exists for NVFP4"}};
  }
  if (format == "compressed-tensors" || format == "modelopt") {
    return {{"any", kNoKernel, "it runs MXFP4 experts of this format on GPUs only"}};
  }
  return {{kAmx, "vllm-cpu/mxfp4", ""}, {"others", kNoKernel, ""}};
}

// The same on Arm, where vLLM has these kernels only. It reads 4-bit weights from checkpoints that
// say 8-bit activations, and from no others.
std::vector<RuntimeChoice> OnArm(std::string_view format, const PackRequest& source) {
  constexpr std::string_view kAnew = "packed anew at every start";
  const Scheme& scheme = source.scheme;
  if (scheme.code == CodeType::kF8E4M3 && scheme.granularity != Granularity::kBlock) {
    return {{"any", "plain torch", ""}};
  }
  if (scheme.code == CodeType::kS8 && scheme.bits == 8 && !Is16Bit(scheme)) {
    if (!source.expert()) return {{"any", kHandler, ""}};
    if (IsDynamicPerChannel(scheme)) return {{"any", "vllm-arm/int8-neon", kAnew}};
  }
  const bool says_so = format == "compressed-tensors" && !Is16Bit(scheme);
  if (scheme.code == CodeType::kU4 && scheme.bits == 4 && says_so && scheme.symmetric) {
    return {{"any", "vllm-arm/int4-w4a8", kAnew}};
  }
  return {{"any", kNoKernel, "no kernel for Arm exists for it"}};
}

}  // namespace

std::vector<RuntimeChoice> RuntimeChoices(std::string_view target, std::string_view format,
                                          const PackRequest& source) {
  const Scheme& scheme = source.scheme;
  const bool arm = target == "vllm-arm";
  if (target != "vllm-cpu" && target != "zentorch" && !arm) return {};
  if (arm && !source.embedding) return OnArm(format, source);
  if (source.embedding) return {{"any", kNoKernel, "it looks rows up on GPUs only"}};
  if (scheme.code == CodeType::kBF16) return {{"any", kHandler, ""}};
  if (scheme.code == CodeType::kF8E4M3) return Fp8(scheme);
  if (scheme.code == CodeType::kF4E2M1) return Fp4(format, source);
  if (scheme.bits == 4) return FourBits(format, source);
  if (scheme.bits == 8) return EightBits(scheme);
  return {{"any", kNoKernel, "no CPU kernel exists for weights of this width"}};
}

}  // namespace prepack
