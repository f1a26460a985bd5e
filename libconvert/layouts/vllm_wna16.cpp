#include "layouts/vllm_wna16.h"

#include "kernels/nibble_transpose.h"
#include "layouts/rules.h"
#include "layouts/scale_convert.h"

namespace prepack {
namespace {

static_assert(kWna16Block == kTransposeRows);
constexpr uint64_t kWordBytes = kWna16Block / 2;  // the codes of a block for one input channel

Eligibility EvenGroups(const PackRequest& request) {
  const uint64_t group_size = request.scheme.group_size;
  if (group_size % 2 == 0 || group_size == request.k) return Eligibility::Yes();
  return Eligibility::No(
      "the group size is odd: groups must hold an even number of input channels");
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      NoActivationQuantization(request),
      ScalesPerChannelOrGroup(request),
      NaturalInputOrder(request),
      MultipleOf("K", request.k, kWna16Multiple, "the kernel takes 32 input channels at a time"),
      MultipleOf("N", request.n, kWna16Multiple, "the kernel takes 32 output channels at a time"),
      GroupsDivideK(request),
      EvenGroups(request),
      ActivationsOneOf(request, {DType::kBF16, DType::kF16}),
      BiasOneOf(request, {request.activation_dtype}),
  });
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {
      {PartRole::kWeight, "weight", DType::kI32, {request.n / kWna16Block, 2 * request.k}},
      {PartRole::kScale, "weight_scale", request.activation_dtype, {request.groups(), request.n}}};
  if (!request.scheme.symmetric) {
    parts.push_back({PartRole::kZeroPoint,
                     "weight_zero_point",
                     DType::kI32,
                     {request.groups(), request.n / 8}});
  }
  return parts;
}

Placement Place(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows) {
  switch (role) {
    case PartRole::kWeight:  // whole blocks of 16 channels lie back to back
      return {.offset = n0 * request.k / 2, .run_bytes = rows * request.k / 2};
    case PartRole::kScale:
      return {.offset = n0 * 2,
              .run_bytes = rows * 2,
              .runs = request.groups(),
              .stride = request.n * 2};
    case PartRole::kZeroPoint:
      return {.offset = n0 / 2,
              .run_bytes = rows / 2,
              .runs = request.groups(),
              .stride = request.n / 2};
  }
  return {};
}

const uint8_t* Bytes(std::span<const std::byte> span) {
  return reinterpret_cast<const uint8_t*>(span.data());
}

uint8_t* Bytes(std::span<std::byte> span) {
  return reinterpret_cast<uint8_t*>(span.data());
}

// Wna16WeightNibble, block by block: nibble (k, n % 16) of a block is nibble n % 16 of its word k.
void PackCodes(const PackRequest& request, Isa isa, const StripPanel& range,
               std::span<const std::byte> panel, std::span<std::byte> packed) {
  const size_t row_bytes = PanelRowBytes(request.scheme.code, range.cols);
  for (uint64_t n = 0; n < range.rows; n += kWna16Block) {
    NibbleTransposeFor(isa).rows_to_columns(
        Bytes(panel.subspan(n * row_bytes)), row_bytes, range.cols,
        Bytes(packed.subspan(n * request.k / 2 + range.k0 * kWordBytes)), kWordBytes);
  }
}

void UnpackCodes(const PackRequest& request, Isa isa, const StripPanel& range,
                 std::span<const std::byte> packed, std::span<std::byte> panel) {
  const size_t row_bytes = PanelRowBytes(request.scheme.code, range.cols);
  for (uint64_t n = 0; n < range.rows; n += kWna16Block) {
    NibbleTransposeFor(isa).columns_to_rows(
        Bytes(packed.subspan(n * request.k / 2 + range.k0 * kWordBytes)), kWordBytes, range.cols,
        row_bytes, Bytes(panel.subspan(n * row_bytes)));
  }
}

Status PackScales(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                  std::span<std::byte> packed) {
  return PackTransposedScales(request.activation_dtype, rows, request.groups(), scales, packed);
}

void UnpackScales(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                  std::span<float> scales) {
  UnpackTransposedScales(request.activation_dtype, rows, request.groups(), packed, scales);
}

void PackZeroPoints(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
                    std::span<std::byte> packed) {
  const uint64_t groups = request.groups();
  for (uint64_t g = 0; g < groups; ++g) {
    for (uint64_t n = 0; n < rows; n += 2) {
      const unsigned even = zero_points[n * groups + g];
      const unsigned odd = zero_points[(n + 1) * groups + g];
      packed[Wna16ZeroPointNibble(n, g, rows) / 2] = static_cast<std::byte>(even | odd << 4);
    }
  }
}

void UnpackZeroPoints(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                      std::span<uint8_t> zero_points) {
  const uint64_t groups = request.groups();
  for (uint64_t g = 0; g < groups; ++g) {
    for (uint64_t n = 0; n < rows; n += 2) {
      const auto byte = std::to_integer<unsigned>(packed[Wna16ZeroPointNibble(n, g, rows) / 2]);
      zero_points[n * groups + g] = static_cast<uint8_t>(byte & 15U);
      zero_points[(n + 1) * groups + g] = static_cast<uint8_t>(byte >> 4);
    }
  }
}

}  // namespace

const Layout kVllmWna16 = {
    .id = "vllm-cpu/wna16",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.cpu_gemm_wna16",
    .mirrors = "vLLM 0.32.0, csrc/cpu/cpu_wna16.cpp",
    .schemes = "w4a16, symmetric or asymmetric, group or channel",
    .constraints =
        "N % 32 = 0, K % 32 = 0, even groups that divide K, bf16 or f16 activations, "
        "bias of the same dtype",
    .isa = "AVX-512 (with BF16 for full accuracy); vLLM's AVX2 library lacks the op",
    .fingerprint = "2a9146febf6fd3afaa0fe04ddd7db52b",
    .eligible = Eligible,
    .parts = Parts,
    .rows_multiple = kWna16Multiple,
    .place = Place,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
    .pack_scales = PackScales,
    .unpack_scales = UnpackScales,
    .pack_zero_points = PackZeroPoints,
    .unpack_zero_points = UnpackZeroPoints,
};

}  // namespace prepack
