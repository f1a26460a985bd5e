// zentorch/da8w4: W4A8 for torch.ops.zentorch.zentorch_dynamic_qlinear, with activations quantized
// per token, symmetric, by the op. What vLLM picks on AMD CPUs for symmetric 4-bit weights, also
// where the checkpoint says 16-bit activations.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/DynamicQLinear.cpp, as called by vLLM 0.32.0,
// vllm/model_executor/kernels/linear/mixed_precision/zentorch.py.
//
// weight, I8 [N, K/2]: the same bytes as symmetric zentorch/woq: row-major nibbles, even input
// channel in the low half, two's complement (code XOR 8).
// weight_scale, bf16 or f32 [G, N]. bias, bf16.

#include "prepack/layouts/layout.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kCodesPerWord = 8;
constexpr std::byte kSignBits{0x88};

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      DynamicInt8Activations(request),
      SymmetricWeights(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("K", request.k, kCodesPerWord, "eight codes share a 32-bit word"),
      GroupsDivideK(request),
      GroupsOfFours(request),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasIsFloat(request),
  });
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {{.role = PartRole::kWeight,
                                  .name = "weight",
                                  .dtype = DType::kI8,
                                  .shape = {request.n, request.k / 2},
                                  .by_outputs = Division::Along(0, 1),
                                  .by_inputs = Division::Along(1, kCodesPerWord)},
                                 {.role = PartRole::kScale,
                                  .name = "weight_scale",
                                  .dtype = ZentorchScaleForm(request).part,
                                  .shape = {request.groups(), request.n},
                                  .by_outputs = Division::Along(1, 1),
                                  .by_inputs = GroupsByInputs(request)}};
  AppendCommonParts(request, DType::kBF16, parts);
  return parts;
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = 1, .cols = 2, .strip_rows = 1};
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  PackRowMajor(job, kSignBits, codes, packed);
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  UnpackRowMajor(job, kSignBits, packed, codes);
}

}  // namespace

constinit const Layout kZentorchDa8w4 = {
    .id = "zentorch/da8w4",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_dynamic_qlinear",
    .mirrors = "zentorch 2.13.0.1, src/cpu/cpp/DynamicQLinear.cpp",
    .schemes = "w4a8 with dynamic symmetric activations, symmetric weights, group or channel",
    .constraints = "K % 8 = 0, groups of a multiple of 4 that divide K, bf16 activations",
    .isa = "AMD CPU with AVX-512",
    .address = "nibble n · K + k",
    .notes =
        "two's complement (code XOR 8); the consumer reorders the weights once more at the "
        "first call",
    .fingerprint = "b6de090e2638673fefada29e5a3745da",
    .eligible = Eligible,
    .parts = Parts,
    .cut = Cut,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .place_rows = PlaceZentorchScales,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
    .scale_form = ZentorchScaleForm,
    .pack_scales = PackZentorchScales,
    .unpack_scales = UnpackZentorchScales,
};

}  // namespace prepack
