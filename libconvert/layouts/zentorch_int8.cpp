#include "layouts/zentorch_int8.h"

#include "layouts/parameters.h"
#include "layouts/row_major.h"
#include "layouts/rules.h"

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

const Layout kZentorchInt8 = {
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
