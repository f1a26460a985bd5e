// vllm-arm/int8-neon and vllm-arm/bf16-neon: experts for the ops of vLLM's CPU backend that run
// those of a layer on Arm, with instructions that multiply two matrices of 2 x 8 bytes (SMMLA) or
// of 2 x 4 bf16 (BFMMLA). Mirrors vLLM 0.32.0: csrc/cpu/micro_gemm/cpu_micro_gemm_int8_neon.hpp and
// cpu_micro_gemm_neon.hpp, and vllm/model_executor/layers/fused_moe/experts/cpu_moe.py, which packs
// at every start.
//
// weight, I8 or BF16 [N, K]: per 8 output channels, for every 8 bytes along K those of the 8 side
// by side:
//
//     int8   byte      0           8           …  64            …  8·K
//                      n0 k0…k7    n1 k0…k7    …  n0 k8…k15     …  n8 k0…k7    …
//     bf16   element   0           4           …  32            …  8·K
//                      n0 k0…k3    n1 k0…k3    …  n0 k4…k7      …  n8 k0…k3    …
//
// int8-neon: W8A8 with activations quantized per token, symmetric, by the op. weight_scale, f32
// [N]. bf16-neon: no scales, they are multiplied in; what experts become that no other layout takes
// (--fallback dequantize). bias in the dtype of the activations.

#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kNeonRows = 8;
constexpr uint64_t kNeonRun = 8;    // bytes of a channel side by side
constexpr uint64_t kNeonStep = 32;  // channels that the ops compute at a time

// Modules that are none have other layouts.
Eligibility ExpertOnArm(const PackRequest& request) {
  if (request.expert()) return Eligibility::Yes();
  return {.ok = false,
          .reason = "the module is not an expert: the op runs the experts of a mixture",
          .other_weights = true};
}

// The input channels of one layer are the output channels of the other.
Eligibility SizesOfExperts(const PackRequest& request) {
  constexpr std::string_view kWhy = "the op computes 32 channels of an expert at a time";
  return AllOf(
      {MultipleOf("N", request.n, kNeonStep, kWhy), MultipleOf("K", request.k, kNeonStep, kWhy)});
}

Eligibility EligibleInt8(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      ExpertOnArm(request),
      SymmetricWeights(request),
      DynamicInt8Activations(request),
      ScalesPerChannelOrTensor(request),
      SizesOfExperts(request),
      InputsInOrder(request),
      BiasIsFloat(request),
  });
}

Eligibility EligibleBf16(const PackRequest& request) {
  return AllOf({
      DequantizedWeights(request),
      ExpertOnArm(request),
      SizesOfExperts(request),
      InputsInOrder(request),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasIsFloat(request),
  });
}

uint64_t WeightBytes(const PackRequest& request) {
  return CodeBits(request.scheme.code) / 8;
}

UnitBlocks Blocks(const PackRequest& request) {
  const uint64_t row_bytes = request.k * WeightBytes(request);
  return {.width = kNeonRows,
          .unit = kNeonRun,
          .units = row_bytes / kNeonRun,
          .block_bytes = kNeonRows * row_bytes};
}

TileCut Cut(const PackRequest& request) {
  return {.rows = kNeonRows, .cols = kNeonRun / WeightBytes(request), .strip_rows = 1};
}

constexpr Extent kNeonPanels{"N/8", [](const PackRequest& r) { return r.n / kNeonRows; }};

// What both layouts have; `runs` of `inputs` channels each are those of a row.
constexpr Layout Neon(DType dtype, Extent runs, uint64_t inputs) {
  return {
      .version = 1,
      .target = "vllm-arm",
      .mirrors = "vLLM 0.32.0, csrc/cpu/micro_gemm/cpu_micro_gemm_int8_neon.hpp",
      .isa = "Arm with I8MM and BF16: vLLM has no other library for Arm",
      .needs = {CpuFeature::kI8mm, CpuFeature::kArmBf16},
      .for_experts = true,
      .stacks_experts = true,
      .weight = {.dtype = dtype,
                 .shape = {symbol::kN, symbol::kK},
                 .by_outputs = DivisionRow::Along(0, kNeonStep),
                 .by_inputs = DivisionRow::Along(1, kNeonStep),
                 .view = {kNeonPanels, runs, kNeonRows * inputs}},
      .bias = symbol::kAsActivations,
      .cut = Cut,
      .weight_bit = InUnits<Blocks>::WeightBit,
      .place_weight = PlaceChannels,
      .pack_codes = InUnits<Blocks>::Pack,
      .unpack_codes = InUnits<Blocks>::Unpack,
  };
}

}  // namespace

constinit const Layout kVllmArmInt8Neon = [] {
  Layout row = Neon(DType::kI8, {"K/8", [](const PackRequest& r) { return r.k / 8; }}, 8);
  row.id = "vllm-arm/int8-neon";
  row.consumer = "torch.ops._C.cpu_fused_moe_int8";
  row.schemes = "w8a8 with dynamic symmetric activations, symmetric weights, channel or tensor";
  row.constraints = "experts only, N % 32 = 0, K % 32 = 0";
  row.address = "byte (n / 8) · 8K + (k / 8) · 64 + (n % 8) · 8 + k % 8";
  row.fingerprint = "816ab8de14f1e0aec0b25c31e4862614";
  row.eligible = EligibleInt8;
  row.scales = {.order = ParameterOrder::kChannels};
  return row;
}();

constinit const Layout kVllmArmBf16Neon = [] {
  Layout row = Neon(DType::kBF16, {"K/4", [](const PackRequest& r) { return r.k / 4; }}, 4);
  row.id = "vllm-arm/bf16-neon";
  row.consumer = "torch.ops._C.cpu_fused_moe";
  row.mirrors = "vLLM 0.32.0, csrc/cpu/micro_gemm/cpu_micro_gemm_neon.hpp";
  row.schemes = "dequantized weights in bf16, 16-bit activations";
  row.constraints = "experts only, N % 32 = 0, K % 32 = 0, bf16 activations";
  row.address = "element (n / 8) · 8K + (k / 4) · 32 + (n % 8) · 4 + k % 4";
  row.notes = "chosen only by --fallback dequantize";
  row.fingerprint = "9424d925f558fd080b570355e4ce6e35";
  row.for_dequantized = true;
  row.eligible = EligibleBf16;
  return row;
}();

}  // namespace prepack
