// Weights as any runtime loads those of an unquantized layer. --fallback dequantize makes modules
// into these that no other layout takes. No scales: they are multiplied in. bias in the dtype of
// the activations.
//
//     plain/bf16          weight, BF16 [N, K], row-major
//     plain/bf16-conv1d   weight, BF16 [K, N], row-major: transformers' Conv1D multiplies x · W
//                         (GPT-2), so this is what a loader of such a model expects

#include "prepack/kernels/kernels.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr size_t kElementBytes = 2;

Eligibility StoredByOutputs(const PackRequest& request) {
  if (!request.inputs_first) return Eligibility::Yes();
  return Eligibility::No(
      "the layer is a Conv1D, whose loaders transpose a plain weight: plain/bf16-conv1d stores it "
      "as they expect it");
}

Eligibility StoredByInputs(const PackRequest& request) {
  if (request.inputs_first) return Eligibility::Yes();
  return {.ok = false,
          .reason = "the layer is not a Conv1D: its plain weight is stored [N, K]",
          .other_weights = true};
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({DequantizedWeights(request), StoredByOutputs(request), BiasIsFloat(request)});
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {PlainWeightPart(request, DType::kBF16)};
  AppendCommonParts(request, request.activation_dtype, parts);
  return parts;
}

Eligibility EligibleConv1d(const PackRequest& request) {
  return AllOf({DequantizedWeights(request), StoredByInputs(request), BiasIsFloat(request)});
}

std::vector<PartSpec> PartsConv1d(const PackRequest& request) {
  std::vector<PartSpec> parts = {{.role = PartRole::kWeight,
                                  .name = "weight",
                                  .dtype = DType::kBF16,
                                  .shape = {request.k, request.n},
                                  .by_outputs = Division::Along(1, 1),
                                  .by_inputs = Division::Along(0, 1)}};
  AppendCommonParts(request, request.activation_dtype, parts);
  return parts;
}

TileCut CutByInputs(const PackRequest& /*request*/) {
  return {.by_inputs = true, .rows = 1, .cols = 1, .strip_rows = 1};
}

uint64_t WeightBitConv1d(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * kElementBytes * (k * request.n + n);
}

Placement PlaceWeightConv1d(const PackRequest& request, const PanelRange& tile) {
  return {{.offset = (tile.k0 * request.n + tile.n0) * kElementBytes,
           .bytes = tile.rows * kElementBytes,
           .count = tile.cols,
           .stride = request.n * kElementBytes}};
}

// The panel's first byte in the tile [tile.cols, tile.rows].
size_t PanelBegin(const PackJob& job) {
  const uint64_t element =
      (job.panel.k0 - job.tile.k0) * job.tile.rows + job.panel.n0 - job.tile.n0;
  return element * kElementBytes;
}

void PackConv1d(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  TransposeUnits(kElementBytes)(codes.data(), job.panel.cols * kElementBytes, job.panel.rows,
                                job.panel.cols, packed.subspan(PanelBegin(job)).data(),
                                job.tile.rows * kElementBytes);
}

void UnpackConv1d(const PackJob& job, std::span<const std::byte> packed,
                  std::span<std::byte> codes) {
  TransposeUnits(kElementBytes)(packed.subspan(PanelBegin(job)).data(),
                                job.tile.rows * kElementBytes, job.panel.cols, job.panel.rows,
                                codes.data(), job.panel.cols * kElementBytes);
}

}  // namespace

constinit const Layout kPlainBf16 = {
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

constinit const Layout kPlainBf16Conv1d = {
    .id = "plain/bf16-conv1d",
    .version = 1,
    .target = kAnyTarget,
    .consumer = "any Conv1D layer (GPT-2 and its relatives)",
    .mirrors = "Hugging Face transformers 5.23.0, pytorch_utils.py: MODULE.weight of a Conv1D",
    .schemes = "dequantized weights in bf16, 16-bit activations",
    .constraints = "any N and K, only a Conv1D",
    .isa = "any",
    .address = "element k · N + n",
    .notes =
        "chosen only by --fallback dequantize; a loader that multiplies with [N, K], such as "
        "vLLM's, transposes the weight itself",
    .fingerprint = "20024c8ba59a5bc6f491a8ad714fb758",
    .for_dequantized = true,
    .inputs_first = true,
    .eligible = EligibleConv1d,
    .parts = PartsConv1d,
    .cut = CutByInputs,
    .weight_bit = WeightBitConv1d,
    .place_weight = PlaceWeightConv1d,
    .pack_codes = PackConv1d,
    .unpack_codes = UnpackConv1d,
};

}  // namespace prepack
