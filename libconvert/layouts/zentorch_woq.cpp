#include "layouts/zentorch_woq.h"

#include "layouts/parameters.h"
#include "layouts/row_major.h"
#include "layouts/rules.h"

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

const Layout kZentorchWoq = {
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
