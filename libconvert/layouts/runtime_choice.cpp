#include "layouts/runtime_choice.h"

namespace prepack {
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

std::vector<RuntimeChoice> FourBits(std::string_view format, const Scheme& source,
                                    DType activation_dtype, bool reordered) {
  if (!Is16Bit(source)) return {};  // not known
  if (reordered) {
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
  if (activation_dtype == DType::kF16) amx = {kAmx, "vllm-cpu/wna16", ""};
  return {zen,
          amx,
          {kBf16, "vllm-cpu/wna16", ""},
          {kAvx512, "vllm-cpu/wna16", "weights and results are truncated to bf16, not rounded"},
          {kAvx2, kNoKernel, "its library for AVX2 lacks the op"}};
}

std::vector<RuntimeChoice> EightBits(const Scheme& source) {
  if (Is16Bit(source)) return {{"any", kNoKernel, "there is no CPU kernel for it"}};
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
  const bool blocks = source.granularity == Granularity::kBlock;
  if (source.granularity == Granularity::kChannel) {
    return {{"any", "plain torch", "dequantized: there is no kernel for scales per channel"}};
  }
  return {{kZen, blocks ? kNoKernel : "plain torch", ""},
          {"AMX with FP8", "vllm-cpu/fp8-w8a8-vnni4", ""},
          {"AMX, or AVX-512 with BF16", "vllm-cpu/fp8-vnni", kWide},
          {"others", blocks ? kNoKernel : "plain torch", ""}};
}

}  // namespace

std::vector<RuntimeChoice> RuntimeChoices(std::string_view target, std::string_view format,
                                          const Scheme& source, DType activation_dtype,
                                          bool reordered) {
  if (target != "vllm-cpu" && target != "zentorch") return {};
  if (source.code == CodeType::kF8E4M3) return Fp8(source);
  if (source.bits == 4) return FourBits(format, source, activation_dtype, reordered);
  if (source.bits == 8) return EightBits(source);
  return {{"any", kNoKernel, "there is no CPU kernel for weights of this width"}};
}

}  // namespace prepack
