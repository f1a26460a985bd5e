#include "layouts/plain_bf16.h"

#include "layouts/row_major.h"
#include "layouts/rules.h"

namespace prepack {
namespace {

Eligibility StoredByOutputs(const PackRequest& request) {
  if (!request.inputs_first) return Eligibility::Yes();
  return Eligibility::No(
      "the model stores the plain weight of this layer as [K, N] (Conv1D), so loaders would "
      "transpose one that is stored [N, K]; without --fallback dequantize it stays as stored");
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({DequantizedWeights(request), StoredByOutputs(request), BiasIsFloat(request)});
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {PlainWeightPart(request, DType::kBF16)};
  AppendCommonParts(request, request.activation_dtype, parts);
  return parts;
}

}  // namespace

const Layout kPlainBf16 = {
    .id = "plain/bf16",
    .version = 1,
    .target = kAnyTarget,
    .consumer = "any linear layer",
    .mirrors = "Hugging Face transformers: MODULE.weight of an unquantized layer",
    .schemes = "dequantized weights in bf16, 16-bit activations",
    .constraints = "any N and K, no Conv1D",
    .isa = "any",
    .address = "element n · K + k",
    .notes = "chosen only by --fallback dequantize",
    .fingerprint = "ec8dc038fc969fe23d903d3927b29fe2",
    .for_dequantized = true,
    .eligible = Eligible,
    .parts = Parts,
    .cut = CutAnywhere,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackPlain,
    .unpack_codes = UnpackPlain,
};

}  // namespace prepack
