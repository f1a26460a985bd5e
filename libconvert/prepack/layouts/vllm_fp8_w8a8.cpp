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

#include <algorithm>
#include <numeric>

#include "prepack/layouts/layout.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kWidth = kParameterBlock;
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

Eligibility Eligible(const PackRequest& request) {
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

std::vector<PartSpec> Parts(const PackRequest& request) {
  const uint64_t b = BlockInputs(request);
  std::vector<PartSpec> parts = {
      {.role = PartRole::kWeight,
       .name = "weight",
       .dtype = DType::kF8E4M3,
       .shape = {request.n / kWidth, request.k / b, b, kWidth},
       .by_outputs = Division::Along(0, kWidth),
       .by_inputs = Division::Along(1, std::lcm(b, kWidth))},
      BlockedPart(request, PartRole::kScale, "weight_scale", DType::kF32)};
  AppendCommonParts(request, DType::kF32, parts);
  return parts;
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = kWidth, .cols = kVnniUnit, .strip_rows = kWidth};
}

// Blocks along K follow each other, and each holds whole units: together they are as one block of
// all of K.
UnitBlocks Blocks(const PackRequest& request, uint64_t unit) {
  return {
      .width = kWidth, .unit = unit, .units = request.k / unit, .block_bytes = kWidth * request.k};
}

template <uint64_t kUnit>
uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * Blocks(request, kUnit).Byte(n, k);
}

template <uint64_t kUnit>
void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  PackUnits(job, Blocks(job.request, kUnit), codes, packed);
}

template <uint64_t kUnit>
void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  UnpackUnits(job, Blocks(job.request, kUnit), packed, codes);
}

Status PackScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                  std::span<std::byte> packed) {
  return PackScaleStrip(F32ScaleForm(request), BlockedStrip(request, rows), scales, packed);
}

void UnpackScales(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                  std::span<float> scales) {
  UnpackScaleStrip(F32ScaleForm(request), BlockedStrip(request, rows), packed, scales);
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
      .eligible = Eligible,
      .parts = Parts,
      .cut = Cut,
      .weight_bit = WeightBit<kUnit>,
      .place_weight = PlaceChannels,
      .place_rows = PlaceBlocked,
      .pack_codes = PackCodes<kUnit>,
      .unpack_codes = UnpackCodes<kUnit>,
      .scale_form = F32ScaleForm,
      .pack_scales = PackScales,
      .unpack_scales = UnpackScales,
  };
}

constexpr Layout MakeVnni4() {
  Layout layout = MakeLayout<kVnniUnit>();
  layout.id = "vllm-cpu/fp8-w8a8-vnni4";
  layout.isa = "AMX-FP8 only: other CPUs read vllm-cpu/fp8-w8a8-plain under the same shape";
  layout.address = "byte (n / 32) · 32K + (k / 4) · 128 + (n % 32) · 4 + k % 4";
  layout.notes = "activations keep 4 significant bits: some 31 dB";
  layout.fingerprint = "db43038b055cf53807f214eccbda90d3";
  return layout;
}

constexpr Layout MakePlain() {
  Layout layout = MakeLayout<kPlainUnit>();
  layout.id = "vllm-cpu/fp8-w8a8-plain";
  layout.isa = "AVX-512 with BF16 and without AMX-FP8";
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
