#include "layouts/vllm_int8_plain.h"

#include "layouts/parameters.h"
#include "layouts/row_major.h"
#include "layouts/rules.h"

namespace prepack {
namespace {

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      SymmetricWeights(request),
      Int8Activations(request),
      ScalesPerChannelOrTensor(request),
      BiasIsFloat(request),
  });
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  std::vector<PartSpec> parts = {PlainWeightPart(request, DType::kI8),
                                 ChannelScalePart(request, DType::kF32)};
  if (activations.dynamic || !activations.symmetric) {
    parts.push_back(WeightSumPart(request, "azp_adj"));
  }
  AppendInputParts(request, parts);
  AppendCommonParts(request, request.activation_dtype, parts);
  return parts;
}

}  // namespace

const Layout kVllmInt8Plain = {
    .id = "vllm-cpu/int8-plain",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.create_onednn_scaled_mm_handler, onednn_scaled_mm",
    .mirrors = "vLLM 0.32.0, vllm/model_executor/kernels/linear/scaled_mm/cpu.py",
    .schemes =
        "w8a8 with dynamic or static, symmetric or asymmetric activations, symmetric "
        "weights, channel or tensor",
    .constraints = "any N and K",
    .isa =
        "any with VNNI (without, oneDNN's sums saturate); the handler "
        "reorders the weights for the CPU when it loads them",
    .address = "byte n · K + k",
    .notes = "",
    .fingerprint = "8b8ec7cb48ef05e1015520d93b71449d",
    .eligible = Eligible,
    .parts = Parts,
    .cut = CutAnywhere,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .place_rows = PlaceChannelScales,
    .pack_codes = PackPlain,
    .unpack_codes = UnpackPlain,
    .scale_form = F32ScaleForm,
    .pack_scales = PackChannelScales,
    .unpack_scales = UnpackChannelScales,
};

}  // namespace prepack
