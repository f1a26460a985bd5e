// zentorch/woq: W4A16 for torch.ops.zentorch.zentorch_woq_linear.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/WOQ_Linear.cpp and WeightReorder.cpp, as called by vLLM
// 0.32.0, vllm/model_executor/kernels/linear/mixed_precision/zentorch.py.
//
// weight, I32 [N, K/8]: row-major nibbles, even input channel in the low half (low nibble first):
//
//     byte   0          1          …  K/2
//            n0k0 n0k1  n0k2 n0k3  …  n1k0 n1k1  …
//
// Symmetric: two's complement (code − 8) & 15, which is code XOR 8. Asymmetric: the unsigned code.
// The consumer passes the transposed view [K/8, N].
// weight_scale, bf16 [G, N]. weight_zero_point, I8 [G, N] with values 0 … 15, if and only if
// asymmetric: its presence is what selects unsigned codes. A bf16 tensor of that name would change
// the formula, so none is ever written.

#include "prepack/layouts/layout.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kCodesPerWord = 8;

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      WideActivations(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("K", request.k, kCodesPerWord, "eight codes share a 32-bit word"),
      GroupsDivideK(request),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasIsFloat(request),
  });
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  const Division by_inputs = GroupsByInputs(request);
  std::vector<PartSpec> parts = {{.role = PartRole::kWeight,
                                  .name = "weight",
                                  .dtype = DType::kI32,
                                  .shape = {request.n, request.k / kCodesPerWord},
                                  .by_outputs = Division::Along(0, 1),
                                  .by_inputs = Division::Along(1, kCodesPerWord)},
                                 {.role = PartRole::kScale,
                                  .name = "weight_scale",
                                  .dtype = ZentorchScaleForm(request).part,
                                  .shape = {request.groups(), request.n},
                                  .by_outputs = Division::Along(1, 1),
                                  .by_inputs = by_inputs}};
  if (!request.scheme.symmetric) {
    parts.push_back({.role = PartRole::kZeroPoint,
                     .name = "weight_zero_point",
                     .dtype = DType::kI8,
                     .shape = {request.groups(), request.n},
                     .by_outputs = Division::Along(1, 1),
                     .by_inputs = by_inputs});
  }
  AppendCommonParts(request, DType::kBF16, parts);
  return parts;
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = 1, .cols = 2, .strip_rows = 1};
}

Placement PlaceRows(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows) {
  const bool scale = role == PartRole::kScale;
  return PlaceTransposed(request, scale ? DTypeBits(ZentorchScaleForm(request).part) : 8, n0, rows);
}

// Code XOR 8 in both nibbles of a byte when symmetric, the code itself when not.
std::byte CodeMask(const PackRequest& request) {
  return request.scheme.symmetric ? std::byte{0x88} : std::byte{0};
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  PackRowMajor(job, CodeMask(job.request), codes, packed);
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  UnpackRowMajor(job, CodeMask(job.request), packed, codes);
}

void PackZeroPoints(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
                    std::span<std::byte> packed) {
  PackZeroBytes(TransposedStrip(request, rows), zero_points, packed);
}

void UnpackZeroPoints(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                      std::span<uint8_t> zero_points) {
  UnpackZeroBytes(TransposedStrip(request, rows), packed, zero_points);
}

}  // namespace

constinit const Layout kZentorchWoq = {
    .id = "zentorch/woq",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_woq_linear",
    .mirrors = "zentorch 2.13.0.1, src/cpu/cpp/WOQ_Linear.cpp",
    .schemes = "w4a16, symmetric or asymmetric, group or channel",
    .constraints = "K % 8 = 0, groups that divide K, bf16 activations",
    .isa = "AMD CPU with AVX-512",
    .address = "nibble n · K + k",
    .notes =
        "symmetric codes are two's complement (code XOR 8), asymmetric ones unsigned; the "
        "consumer reorders the weights once more at the first call",
    .fingerprint = "9289e960e382bd625dbd2e000b4eeddb",
    .eligible = Eligible,
    .parts = Parts,
    .cut = Cut,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .place_rows = PlaceRows,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
    .scale_form = ZentorchScaleForm,
    .pack_scales = PackZentorchScales,
    .unpack_scales = UnpackZentorchScales,
    .pack_zero_points = PackZeroPoints,
    .unpack_zero_points = UnpackZeroPoints,
};

}  // namespace prepack
