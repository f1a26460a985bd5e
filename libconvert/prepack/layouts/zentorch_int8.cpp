// zentorch/int8: W8A8 for torch.ops.zentorch.zentorch_dynamic_qlinear, with activations quantized
// per token, symmetric, by the op.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/DynamicQLinear.cpp, as called by vLLM 0.32.0,
// vllm/model_executor/kernels/linear/scaled_mm/zentorch.py.
//
// weight, I8 [N, K], row-major. weight_scale [N], bf16 as vLLM casts it, or f32, with which results
// are 0.1 to 0.4 dB better. bias, bf16.

#include "prepack/layouts/layout.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      SymmetricWeights(request),
      DynamicInt8Activations(request),
      ScalesPerChannelOrTensor(request),
      ActivationsOneOf(request, {DType::kBF16, DType::kF32}),
      BiasIsFloat(request),
  });
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {PlainWeightPart(request, DType::kI8),
                                 ChannelScalePart(request, ZentorchScaleForm(request).part)};
  AppendCommonParts(request, DType::kBF16, parts);
  return parts;
}

}  // namespace

constinit const Layout kZentorchInt8 = {
    .id = "zentorch/int8",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_dynamic_qlinear",
    .mirrors = "zentorch 2.13.0.1, src/cpu/cpp/DynamicQLinear.cpp",
    .schemes = "w8a8 with dynamic symmetric activations, symmetric weights, channel or tensor",
    .constraints = "any N and K, bf16 or f32 activations",
    .isa = "AMD CPU with AVX-512",
    .address = "byte n · K + k",
    .notes = "the consumer reorders the weights once more at the first call",
    .fingerprint = "9655458f2cb835e1864cc8fc146481a5",
    .eligible = Eligible,
    .parts = Parts,
    .cut = CutAnywhere,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .place_rows = PlaceZentorchScales,
    .pack_codes = PackPlain,
    .unpack_codes = UnpackPlain,
    .scale_form = ZentorchScaleForm,
    .pack_scales = PackZentorchScales,
    .unpack_scales = UnpackZentorchScales,
};

}  // namespace prepack
