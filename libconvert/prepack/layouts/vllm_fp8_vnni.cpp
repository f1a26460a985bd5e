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

#include <cstring>

#include "prepack/layouts/layout.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kWidth = 32;
constexpr uint64_t kUnit = 2;
constexpr uint64_t kScaleInputs = 128;  // input channels per scale, fixed in the kernel

Eligibility ScalesFit(const PackRequest& request) {
  const Scheme& scheme = request.scheme;
  if (scheme.granularity == Granularity::kTensor || scheme.granularity == Granularity::kChannel) {
    return Eligibility::Yes();
  }
  if (scheme.granularity == Granularity::kBlock && scheme.group_size == kScaleInputs) {
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

bool IsPerChannel(const PackRequest& request) {
  return request.scheme.granularity == Granularity::kChannel;
}

// Scales along K, and how many times a canonical one stands there.
uint64_t ScaleColumns(const PackRequest& request) {
  return CeilDiv(request.k, kScaleInputs);
}

PartSpec ScalePart(const PackRequest& request) {
  if (IsPerChannel(request)) return ChannelScalePart(request, DType::kF32);
  const bool tensor = request.scheme.granularity == Granularity::kTensor;
  const uint64_t rows = request.scheme.scale_rows;
  return {.role = PartRole::kScale,
          .name = "weight_scale_inv",
          .dtype = DType::kF32,
          .shape = {CeilDiv(request.n, rows), ScaleColumns(request)},
          .by_outputs = tensor ? Division::Whole() : Division::Along(0, rows),
          .by_inputs = Division::Along(1, kScaleInputs)};
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {{.role = PartRole::kWeight,
                                  .name = "weight",
                                  .dtype = DType::kF8E4M3,
                                  .shape = {request.n, request.k},
                                  .by_outputs = Division::Along(0, kWidth),
                                  .by_inputs = Division::Along(1, kWidth),
                                  .view = {request.n / kWidth, request.k / kUnit, kWidth * kUnit}},
                                 ScalePart(request)};
  AppendCommonParts(request, DType::kF32, parts);
  return parts;
}

TileCut Cut(const PackRequest& request) {
  return {.rows = kWidth, .cols = kUnit, .strip_rows = request.scheme.scale_rows};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * Blocks(request).Byte(n, k);
}

Placement PlaceRows(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows) {
  if (IsPerChannel(request)) return PlaceChannelScales(request, role, n0, rows);
  const uint64_t row_bytes = ScaleColumns(request) * sizeof(float);
  return {{.offset = n0 / request.scheme.scale_rows * row_bytes,
           .bytes = CeilDiv(rows, request.scheme.scale_rows) * row_bytes}};
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  PackUnits(job, Blocks(job.request), codes, packed);
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  UnpackUnits(job, Blocks(job.request), packed, codes);
}

// The scale of block (row, column) stands at canonical [row · scale_rows, column], or, for a
// tensor, at [0, 0].
uint64_t CanonicalIndex(const PackRequest& request, uint64_t row, uint64_t column) {
  const uint64_t groups = request.groups();
  return row * request.scheme.scale_rows * groups + (groups == 1 ? 0 : column);
}

Status PackScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                  std::span<std::byte> packed) {
  if (IsPerChannel(request)) return PackChannelScales(request, rows, scales, packed);
  const uint64_t columns = ScaleColumns(request);
  for (uint64_t row = 0; row < CeilDiv(rows, request.scheme.scale_rows); ++row) {
    for (uint64_t column = 0; column < columns; ++column) {
      const float scale = scales[CanonicalIndex(request, row, column)];
      std::memcpy(&packed[(row * columns + column) * sizeof scale], &scale, sizeof scale);
    }
  }
  return {};
}

void UnpackScales(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                  std::span<float> scales) {
  if (IsPerChannel(request)) return UnpackChannelScales(request, rows, packed, scales);
  const uint64_t groups = request.groups();
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t g = 0; g < groups; ++g) {
      const uint64_t at = row / request.scheme.scale_rows * ScaleColumns(request) + g;
      std::memcpy(&scales[row * groups + g], &packed[at * sizeof(float)], sizeof(float));
    }
  }
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
    .address = "byte (n / 32) · 32K + (k / 2) · 64 + (n % 32) · 2 + k % 2",
    .notes =
        "scales per channel: the consumer passes block scales of 1 and multiplies the result; "
        "the kernel decodes zeros and subnormals as normal numbers",
    .fingerprint = "298fccdddd426fa5a5fbe65912678391",
    .eligible = Eligible,
    .parts = Parts,
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceChannels,
    .place_rows = PlaceRows,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
    .scale_form = F32ScaleForm,
    .pack_scales = PackScales,
    .unpack_scales = UnpackScales,
};

}  // namespace prepack
