#include "layouts/zentorch_woq.h"

#include "kernels/xor_copy.h"
#include "layouts/rules.h"
#include "layouts/scale_convert.h"

namespace prepack {
namespace {

constexpr uint64_t kCodesPerWord = 8;

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      NoActivationQuantization(request),
      ScalesPerChannelOrGroup(request),
      NaturalInputOrder(request),
      MultipleOf("K", request.k, kCodesPerWord, "eight codes share a 32-bit word"),
      GroupsDivideK(request),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasOneOf(request, {DType::kBF16, DType::kF32}),
  });
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {
      {PartRole::kWeight, "weight", DType::kI32, {request.n, request.k / kCodesPerWord}},
      {PartRole::kScale, "weight_scale", DType::kBF16, {request.groups(), request.n}}};
  if (!request.scheme.symmetric) {
    parts.push_back(
        {PartRole::kZeroPoint, "weight_zero_point", DType::kI8, {request.groups(), request.n}});
  }
  return parts;
}

Placement Place(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows) {
  const uint64_t element = role == PartRole::kScale ? 2 : 1;
  if (role == PartRole::kWeight) {
    return {.offset = n0 * request.k / 2, .run_bytes = rows * request.k / 2};
  }
  return {.offset = n0 * element,
          .run_bytes = rows * element,
          .runs = request.groups(),
          .stride = request.n * element};
}

// Code XOR 8 in both nibbles of a byte when symmetric, the code itself when not.
std::byte CodeMask(const PackRequest& request) {
  return request.scheme.symmetric ? std::byte{0x88} : std::byte{0};
}

// A panel is row-major nibbles already, as is a strip: only the sign bit differs.
void PackCodes(const PackRequest& request, Isa /*isa*/, const StripPanel& range,
               std::span<const std::byte> panel, std::span<std::byte> packed) {
  if (range.cols == request.k) return XorCopy(panel, CodeMask(request), packed);
  const size_t row_bytes = PanelRowBytes(request.scheme.code, range.cols);
  for (uint64_t row = 0; row < range.rows; ++row) {
    XorCopy(panel.subspan(row * row_bytes, row_bytes), CodeMask(request),
            packed.subspan((row * request.k + range.k0) / 2, row_bytes));
  }
}

void UnpackCodes(const PackRequest& request, Isa /*isa*/, const StripPanel& range,
                 std::span<const std::byte> packed, std::span<std::byte> panel) {
  if (range.cols == request.k) return XorCopy(packed, CodeMask(request), panel);
  const size_t row_bytes = PanelRowBytes(request.scheme.code, range.cols);
  for (uint64_t row = 0; row < range.rows; ++row) {
    XorCopy(packed.subspan((row * request.k + range.k0) / 2, row_bytes), CodeMask(request),
            panel.subspan(row * row_bytes, row_bytes));
  }
}

Status PackScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                  std::span<std::byte> packed) {
  return PackTransposedScales(DType::kBF16, rows, request.groups(), scales, packed);
}

void UnpackScales(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                  std::span<float> scales) {
  UnpackTransposedScales(DType::kBF16, rows, request.groups(), packed, scales);
}

void PackZeroPoints(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
                    std::span<std::byte> packed) {
  const uint64_t groups = request.groups();
  for (uint64_t g = 0; g < groups; ++g) {
    for (uint64_t n = 0; n < rows; ++n) {
      packed[g * rows + n] = static_cast<std::byte>(zero_points[n * groups + g]);
    }
  }
}

void UnpackZeroPoints(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                      std::span<uint8_t> zero_points) {
  const uint64_t groups = request.groups();
  for (uint64_t g = 0; g < groups; ++g) {
    for (uint64_t n = 0; n < rows; ++n) {
      zero_points[n * groups + g] = std::to_integer<uint8_t>(packed[g * rows + n]);
    }
  }
}

}  // namespace

const Layout kZentorchWoq = {
    .id = "zentorch/woq",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_woq_linear",
    .mirrors = "zentorch 2.13.0.1, src/cpu/cpp/WOQ_Linear.cpp",
    .schemes = "w4a16, symmetric or asymmetric, group or channel",
    .constraints = "K % 8 = 0, groups that divide K, bf16 activations, bf16 or f32 bias",
    .isa = "AMD CPU with AVX-512",
    .fingerprint = "9289e960e382bd625dbd2e000b4eeddb",
    .eligible = Eligible,
    .parts = Parts,
    .rows_multiple = 1,
    .place = Place,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
    .pack_scales = PackScales,
    .unpack_scales = UnpackScales,
    .pack_zero_points = PackZeroPoints,
    .unpack_zero_points = UnpackZeroPoints,
};

}  // namespace prepack
