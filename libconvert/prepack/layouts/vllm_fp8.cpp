// vllm-cpu/fp8-vnni: FP8 weights with 16-bit activations for torch.ops._C.fp8_scaled_mm_cpu of
// vLLM's CPU backend.
// Mirrors vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm.cpp and gemm_fp8.cpp.
//
// weight, F8_E4M3 [N, K]: codes move, their bits do not change. Per 32 output channels, for every
// two input channels those of the 32 side by side:
//
//     byte   0            2            …  64                …  32·K
//            n0k0 n0k1    n1k0 n1k1    …  n0k2 n0k3  …      …  n32k0 n32k1  …
//
// Scales per block of 128 input channels: weight_scale_inv, f32 [⌈N / block rows⌉, ⌈K / 128⌉]. One
// for the whole tensor: weight_scale_inv, f32 [1, ⌈K / 128⌉], the scale repeated. One per output
// channel, for which the op has no form: weight_scale, f32 [N]; the consumer passes scales of 1 and
// multiplies the result. bias, f32.
//
// The kernel's decoder takes every code for a normal number: zeros and subnormals come out as up to
// ±2^-6 in units of the scale.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kWidth = 32;
constexpr uint64_t kUnit = 2;

Eligibility ScalesFit(const PackRequest& request) {
  const Scheme& scheme = request.scheme;
  if (scheme.granularity == Granularity::kTensor || scheme.granularity == Granularity::kChannel) {
    return Eligibility::Yes();
  }
  if (scheme.granularity == Granularity::kBlock && scheme.group_size == kSquareInputs) {
    return MultipleOf("the number of output channels per scale", scheme.scale_rows, kWidth,
                      "the kernel applies one scale per 32 output channels");
  }
  return Eligibility::No(
      fmt::format("the scales are per {} of {} input channels: the kernel applies one scale per "
                  "128 of them, for 32 output channels or more",
                  GranularityName(scheme.granularity), scheme.group_size));
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      Fp8Codes(request),
      WideActivations(request),
      ScalesFit(request),
      MultipleOf("N", request.n, kWidth,
                 "packed in blocks of 32 output channels; vLLM asks for 16 only, and then the "
                 "process can abort"),
      MultipleOf("K", request.k, kWidth, "packed 32 input channels at a time"),
      ActivationsBf16OrAbort(request),
      BiasIsFloat(request),
  });
}

UnitBlocks Blocks(const PackRequest& request) {
  return {.width = kWidth,
          .unit = kUnit,
          .units = request.k / kUnit,
          .block_bytes = kWidth * request.k};
}

TileCut Cut(const PackRequest& request) {
  return {.rows = kWidth, .cols = kUnit, .strip_rows = request.scheme.scale_rows};
}

}  // namespace

constinit const Layout kVllmFp8Vnni = {
    .id = "vllm-cpu/fp8-vnni",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.fp8_scaled_mm_cpu",
    .mirrors = "vLLM 0.32.0, csrc/cpu/sgl-kernels/gemm.cpp, gemm_fp8.cpp",
    .schemes = "FP8 (e4m3) weights with 16-bit activations; scales per block, tensor or channel",
    .constraints =
        "N % 32 = 0, K % 32 = 0, blocks of 128 input and a multiple of 32 output "
        "channels, bf16 activations",
    .isa = "AVX-512 with BF16",
    .needs = {CpuFeature::kAvx512, CpuFeature::kBf16},
    .address = "byte (n / 32) · 32K + (k / 2) · 64 + (n % 32) · 2 + k % 2",
    .notes =
        "scales per channel: the consumer passes block scales of 1 and multiplies the result; "
        "the kernel decodes zeros and subnormals as normal numbers",
    .fingerprint = "298fccdddd426fa5a5fbe65912678391",
    .stacks_experts = true,
    .expert_op = {"scales per block",
                  [](const PackRequest& r) { return r.scheme.granularity == Granularity::kBlock; }},
    .eligible = Eligible,
    .weight = {.dtype = DType::kF8E4M3,
               .shape = {symbol::kN, symbol::kK},
               .by_outputs = DivisionRow::Along(0, kWidth),
               .by_inputs = DivisionRow::Along(1, kWidth),
               .view = {{"N/32", [](const PackRequest& r) { return r.n / kWidth; }},
                        {"K/2", [](const PackRequest& r) { return r.k / kUnit; }},
                        kWidth* kUnit}},
    .scales = {.order = ParameterOrder::kSquares},
    .consumer_scales = symbol::kScalesPerChannel,
    .cut = Cut,
    .weight_bit = InUnits<Blocks>::WeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = InUnits<Blocks>::Pack,
    .unpack_codes = InUnits<Blocks>::Unpack,
};

// vllm-cpu/fp8-w8a8-vnni4 and -plain: FP8 weights and activations for
// torch.ops._C.fp8_scaled_mm_with_quant of vLLM's CPU backend, which quantizes activations per
// token. Its packer float8_linear_prepack_cpu asks the CPU: with AMX-FP8 it puts four input
// channels side by side, otherwise one; same shape, same dtype, no tag. So they are two layouts,
// and each is garbage to a CPU of the other kind. Mirrors vLLM 0.32.0:
// csrc/cpu/sgl-kernels/gemm_fp8_w8a8.cpp.
//
// Blocks of 32 output by b input channels, b = min(group size, 128), halved until it divides K; v
// is 4 or 1:
//
// weight, F8_E4M3 [N/32, K/b, b, 32]: byte (n/32)·32K + (k/b)·32b + (k%b/v)·32v + (n%32)·v + k%b%v
// weight_scale, f32 [N/32, G, 32]; scales of blocks are repeated for their channels. bias, f32.

namespace {

constexpr uint64_t kMostInputs = 128;
constexpr uint64_t kVnniUnit = 4;
constexpr uint64_t kPlainUnit = 1;

uint64_t BlockInputs(const PackRequest& request) {
  uint64_t b = std::min(request.scheme.group_size, kMostInputs);
  while (b > 1 && request.k % b != 0) b /= 2;
  return b;
}

Eligibility Fp8Activations(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  if (activations.type == ActivationType::kFloat && activations.dynamic) return Eligibility::Yes();
  return Eligibility::No(
      "activations are not FP8 at run time: the kernel quantizes them so (--scheme w8a8 asks for "
      "it)");
}

Eligibility EligibleW8A8(const PackRequest& request) {
  return AllOf({
      Fp8Codes(request),
      Fp8Activations(request),
      MultipleOf("N", request.n, kWidth, "packed in blocks of 32 output channels"),
      MultipleOf("K", request.k, kWidth,
                 "the activation quantizer leaves the rest of a row as it was, and the consumer "
                 "would compute garbage"),
      GroupsDivideK(request),
      MultipleOf("the block of input channels", BlockInputs(request), kVnniUnit,
                 "packed four at a time; the consumer's packer writes past its buffer otherwise"),
      MultipleOf("the group size", request.scheme.group_size, BlockInputs(request),
                 "blocks of so many input channels have one scale each; the op refuses others"),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasIsFloat(request),
  });
}

TileCut CutW8A8(const PackRequest& /*request*/) {
  return {.rows = kWidth, .cols = kVnniUnit, .strip_rows = kWidth};
}

// Blocks along K follow each other, and each holds whole units: together they are as one block of
// all of K.
template <uint64_t kUnit>
UnitBlocks BlocksW8A8(const PackRequest& request) {
  return {.width = kWidth,
          .unit = kUnit,
          .units = request.k / kUnit,
          .block_bytes = kWidth * request.k};
}

// What both have in common.
template <uint64_t kUnit>
constexpr Layout MakeLayout() {
  return {
      .version = 1,
      .target = "vllm-cpu",
      .consumer = "torch.ops._C.fp8_scaled_mm_with_quant",
      .mirrors = "vLLM 0.32.0, csrc/cpu/sgl-kernels/gemm_fp8_w8a8.cpp",
      .schemes =
          "FP8 (e4m3) weights and dynamic FP8 activations; scales per block, tensor or "
          "channel",
      .constraints =
          "N % 32 = 0, K % 32 = 0, groups of a multiple of 4 that divide K, above 128 of whole "
          "blocks, bf16 activations",
      .eligible = EligibleW8A8,
      .weight = {.dtype = DType::kF8E4M3,
                 .shape = {{"N/32", [](const PackRequest& r) { return r.n / kWidth; }},
                           {"K/b", [](const PackRequest& r) { return r.k / BlockInputs(r); }},
                           {"b", BlockInputs},
                           kWidth},
                 .by_outputs = DivisionRow::Along(0, kWidth),
                 .by_inputs = DivisionRow::Along(
                     1, {"lcm(b, 32)",
                         [](const PackRequest& r) { return std::lcm(BlockInputs(r), kWidth); }})},
      .scales = {.order = ParameterOrder::kBlocks},
      .cut = CutW8A8,
      .weight_bit = InUnits<BlocksW8A8<kUnit>>::WeightBit,
      .place_weight = PlaceChannels,
      .pack_codes = InUnits<BlocksW8A8<kUnit>>::Pack,
      .unpack_codes = InUnits<BlocksW8A8<kUnit>>::Unpack,
  };
}

constexpr Layout MakeVnni4() {
  Layout layout = MakeLayout<kVnniUnit>();
  layout.id = "vllm-cpu/fp8-w8a8-vnni4";
  layout.isa = "AMX-FP8 only: other CPUs read vllm-cpu/fp8-w8a8-plain under the same shape";
  layout.needs = {CpuFeature::kAmxFp8};
  layout.address = "byte (n / 32) · 32K + (k / 4) · 128 + (n % 32) · 4 + k % 4";
  layout.notes = "activations keep 4 significant bits: some 31 dB";
  layout.fingerprint = "db43038b055cf53807f214eccbda90d3";
  return layout;
}

constexpr Layout MakePlain() {
  Layout layout = MakeLayout<kPlainUnit>();
  layout.id = "vllm-cpu/fp8-w8a8-plain";
  layout.isa = "AVX-512 with BF16 and without AMX-FP8";
  layout.needs = {CpuFeature::kAvx512, CpuFeature::kBf16};
  layout.excludes = {CpuFeature::kAmxFp8};
  layout.address = "byte (n / 32) · 32K + k · 32 + n % 32";
  layout.notes =
      "never chosen: vLLM uses the op with AMX-FP8 only, which reads "
      "vllm-cpu/fp8-w8a8-vnni4";
  layout.fingerprint = "a9fcd27cde00aa884861a23d2223b4e2";
  layout.offered = false;
  return layout;
}

}  // namespace

constinit const Layout kVllmFp8W8A8Vnni4 = MakeVnni4();
constinit const Layout kVllmFp8W8A8Plain = MakePlain();

}  // namespace prepack
