// vllm-cpu/int8-plain: W8A8 for vLLM's oneDNN handler (create_onednn_scaled_mm_handler and
// onednn_scaled_mm), which takes plain weights and reorders them itself. For the activations that
// vllm-cpu/int8-vnni does not do: static, or with zero points.
// Mirrors vLLM 0.32.0: vllm/model_executor/kernels/linear/scaled_mm/cpu.py.
//
// weight, I8 [N, K], row-major. weight_scale, f32 [N].
// input_scale, f32 [1], of static activations; input_zero_point, i32 [1], when they have one.
// azp_adj, f32 [N] = Σ_k w · scale, when activations are dynamic or have zero points.
// bias in the dtype of the activations.

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

constinit const Layout kVllmInt8Plain = {
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
