#include "prepack/layouts/rules.h"

#include "catch.h"

namespace prepack::testing {
namespace {

using Choices = std::vector<RuntimeChoice>;

constexpr std::string_view kZen = "AMD with AVX-512 and zentorch";
constexpr std::string_view kBf16 = "AVX-512 with BF16";
constexpr std::string_view kAvx512 = "AVX-512 without BF16";
constexpr std::string_view kEightBits = "8-bit activations although the checkpoint says 16";
constexpr std::string_view kTruncated = "weights and results are truncated to bf16, not rounded";
constexpr std::string_view kNone = "none: it refuses to load";
constexpr std::string_view kNoOp = "its library for AVX2 lacks the op";
constexpr std::string_view kHandler = "oneDNN matmul on plain weights";

ActivationScheme EightBitLinear(bool symmetric = true, bool dynamic = true) {
  return {.type = ActivationType::kInt, .bits = 8, .symmetric = symmetric, .dynamic = dynamic};
}

Scheme FourBits(bool symmetric, uint64_t group_size = 128, const ActivationScheme& acts = {}) {
  return {.group_size = group_size, .symmetric = symmetric, .activations = acts};
}

Scheme Bytes(CodeType code, Granularity granularity, const ActivationScheme& activations) {
  return {.code = code, .bits = 8, .granularity = granularity, .activations = activations};
}

Choices Of(std::string_view format, const Scheme& scheme, DType dtype = DType::kBF16) {
  PackRequest source;
  source.scheme = scheme;
  source.activation_dtype = dtype;
  Choices choices = RuntimeChoices("vllm-cpu", format, source);
  // zentorch is a plugin of the same runtime.
  CHECK(RuntimeChoices("zentorch", format, source) == choices);
  return choices;
}

// What 4-bit weights get: only the first two CPUs differ.
Choices FourBitChoices(const RuntimeChoice& zen, const RuntimeChoice& amx) {
  return {zen,
          amx,
          {kBf16, "vllm-cpu/wna16", ""},
          {kAvx512, "vllm-cpu/wna16", kTruncated},
          {"AVX2", kNone, kNoOp}};
}

TEST_CASE("4-bit weights: the storage decides on AMD, the dtype on AMX") {
  const RuntimeChoice amx{"AMX", "vllm-cpu/int4-w4a8", kEightBits};
  const RuntimeChoice amx_f16{"AMX", "vllm-cpu/wna16", ""};
  const RuntimeChoice da8w4{kZen, "zentorch/da8w4", kEightBits};
  const RuntimeChoice woq{kZen, "zentorch/woq", ""};
  const RuntimeChoice wna16{kZen, "vllm-cpu/wna16", ""};
  CHECK(Of("compressed-tensors", FourBits(true)) == FourBitChoices(da8w4, amx));
  CHECK(Of("compressed-tensors", FourBits(false)) == FourBitChoices(woq, amx));
  CHECK(Of("compressed-tensors", FourBits(true, 4)) == FourBitChoices(da8w4, amx));
  CHECK(Of("compressed-tensors", FourBits(true, 6)) == FourBitChoices(woq, amx));
  CHECK(Of("compressed-tensors", FourBits(true), DType::kF16) == FourBitChoices(da8w4, amx_f16));
  for (const std::string_view format : {"gptq", "awq"}) {
    CHECK(Of(format, FourBits(true)) == FourBitChoices(wna16, amx));
    CHECK(Of(format, FourBits(false)) == FourBitChoices(wna16, amx));
    CHECK(Of(format, FourBits(true), DType::kF16) == FourBitChoices(wna16, amx_f16));
  }
}

TEST_CASE("nothing is said of 4-bit weights with 8-bit activations") {
  CHECK(Of("compressed-tensors", FourBits(true, 128, EightBitLinear())).empty());
}

TEST_CASE("activation order is refused") {
  const Choices refused = {{"any", kNone, "vLLM's CPU kernels have no activation order"}};
  PackRequest source;
  source.scheme = FourBits(true);
  source.reordered = true;
  for (const std::string_view format : {"gptq", "compressed-tensors"}) {
    CHECK(RuntimeChoices("vllm-cpu", format, source) == refused);
  }
}

TEST_CASE("quantized embeddings are for GPUs") {
  PackRequest source;
  source.scheme = FourBits(true);
  source.embedding = true;
  CHECK(RuntimeChoices("vllm-cpu", "compressed-tensors", source) ==
        Choices{{"any", kNone, "it looks rows up on GPUs only"}});
}

TEST_CASE("int8: the kernel of the CPU, or oneDNN's") {
  const auto int8 = [](Granularity granularity, const ActivationScheme& activations) {
    return Of("compressed-tensors", Bytes(CodeType::kS8, granularity, activations));
  };
  const RuntimeChoice others{"others", kHandler, ""};
  CHECK(int8(Granularity::kChannel, EightBitLinear()) ==
        Choices{{kZen, "zentorch/int8", ""}, {"AMX", "vllm-cpu/int8-vnni", ""}, others});
  CHECK(int8(Granularity::kTensor, EightBitLinear()) ==
        Choices{{kZen, kHandler, ""}, {"AMX", "vllm-cpu/int8-vnni", ""}, others});
  CHECK(int8(Granularity::kChannel, EightBitLinear(true, false)) ==
        Choices{{kZen, kHandler, ""},
                {"AMX", "vllm-cpu/int8-vnni", "the static scale of activations is ignored"},
                others});
  for (const bool dynamic : {true, false}) {
    CHECK(int8(Granularity::kChannel, EightBitLinear(false, dynamic)) ==
          Choices{{kZen, kHandler, ""}, {"AMX", kHandler, ""}, others});
  }
  CHECK(int8(Granularity::kChannel, {}) == Choices{{"any", kNone, "no CPU kernel exists for it"}});
}

TEST_CASE("FP8: blocks need a kernel, one scale does not") {
  const ActivationScheme fp8{.type = ActivationType::kFloat, .bits = 8};
  const auto choices = [&](Granularity granularity) {
    return Of("fp8", Bytes(CodeType::kF8E4M3, granularity, fp8));
  };
  const RuntimeChoice amx_fp8{"AMX with FP8", "vllm-cpu/fp8-w8a8-vnni4", ""};
  const RuntimeChoice vnni{"AMX", "vllm-cpu/fp8-vnni",
                           "16-bit activations, whatever the checkpoint says"};
  const RuntimeChoice channels{
      "AMX", "vllm-cpu/fp8-vnni",
      "16-bit activations, whatever the checkpoint says; vLLM 0.32: plain torch"};
  const RuntimeChoice torch{"others", "plain torch", ""};
  CHECK(choices(Granularity::kBlock) == Choices{amx_fp8, vnni, {"others", kNone, ""}});
  CHECK(choices(Granularity::kTensor) == Choices{amx_fp8, vnni, torch});
  CHECK(choices(Granularity::kChannel) == Choices{amx_fp8, channels, torch});
}

TEST_CASE("FP4: experts of MXFP4 have an op, nothing else has") {
  PackRequest source;
  source.scheme = {.code = CodeType::kF4E2M1, .granularity = Granularity::kGroup, .group_size = 32};
  const auto choices = [&] { return RuntimeChoices("vllm-cpu", "mxfp4", source); };
  CHECK(choices() ==
        Choices{{"any", kNone, "no CPU kernel exists for FP4 weights of single linear layers"}});
  source.experts = 1;
  CHECK(choices() == Choices{{"AMX", "vllm-cpu/mxfp4", ""}, {"others", kNone, ""}});
  CHECK(RuntimeChoices("vllm-cpu", "compressed-tensors", source) ==
        Choices{{"any", kNone, "it runs MXFP4 experts of this format on GPUs only"}});
  source.scheme.group_size = 16;
  CHECK(choices() == Choices{{"any", kNone, "no CPU kernel exists for NVFP4"}});
}

TEST_CASE("weights that are not quantized run in oneDNN") {
  Scheme scheme = FourBits(true);
  scheme.code = CodeType::kBF16;
  scheme.bits = 16;
  CHECK(Of("mxfp4", scheme) == Choices{{"any", "oneDNN matmul on plain weights", ""}});
}

TEST_CASE("weights of other widths have no kernel") {
  Scheme scheme = FourBits(true);
  scheme.bits = 3;
  CHECK(Of("gptq", scheme) ==
        Choices{{"any", kNone, "no CPU kernel exists for weights of this width"}});
}

TEST_CASE("a target whose runtime loads no checkpoints chooses nothing") {
  PackRequest source;
  source.scheme = FourBits(true);
  CHECK(RuntimeChoices("onednn", "gptq", source).empty());
}

TEST_CASE(
    "on Arm there are few kernels, and 4 bits are for checkpoints that say 8-bit activations") {
  const auto on_arm = [](std::string_view format, const Scheme& scheme, uint64_t experts = 0) {
    PackRequest source;
    source.scheme = scheme;
    source.experts = experts;
    return RuntimeChoices("vllm-arm", format, source);
  };
  const Choices none = {{"any", kNone, "no kernel for Arm exists for it"}};
  const Choices int4 = {{"any", "vllm-arm/int4-w4a8", "packed anew at every start"}};
  CHECK(on_arm("compressed-tensors", FourBits(true, 32, EightBitLinear())) == int4);
  CHECK(on_arm("compressed-tensors", FourBits(false, 32, EightBitLinear())) == none);
  CHECK(on_arm("compressed-tensors", FourBits(true)) == none);
  CHECK(on_arm("gptq", FourBits(true)) == none);
  CHECK(on_arm("compressed-tensors",
               Bytes(CodeType::kS8, Granularity::kChannel, EightBitLinear(false, false))) ==
        Choices{{"any", kHandler, ""}});
  CHECK(on_arm("compressed-tensors", Bytes(CodeType::kS8, Granularity::kChannel, {})) == none);
  CHECK(on_arm("fp8", Bytes(CodeType::kF8E4M3, Granularity::kBlock, {})) == none);
  CHECK(on_arm("fp8", Bytes(CodeType::kF8E4M3, Granularity::kTensor, {})) ==
        Choices{{"any", "plain torch", ""}});
  // One expert or several of a mixture.
  CHECK(on_arm("compressed-tensors", FourBits(true, 32, EightBitLinear()), 4) == int4);
  const Choices int8 = {{"any", "vllm-arm/int8-neon", "packed anew at every start"}};
  CHECK(on_arm("compressed-tensors",
               Bytes(CodeType::kS8, Granularity::kChannel, EightBitLinear(true, true)), 1) == int8);
  CHECK(on_arm("compressed-tensors",
               Bytes(CodeType::kS8, Granularity::kChannel, EightBitLinear(false, true)),
               1) == none);
}

}  // namespace
}  // namespace prepack::testing
