// Weights as any runtime loads those of an unquantized layer. --fallback dequantize makes modules
// into these that no other layout takes. No scales: they are multiplied in. bias in the dtype of
// the activations.
//
//     plain/bf16          weight, BF16 [N, K], row-major
//     plain/bf16-conv1d   weight, BF16 [K, N], row-major: transformers' Conv1D multiplies x · W
//                         (GPT-2), so this is what a loader of such a model expects
//     bf16/experts        EXPERTS.PROJECTION, BF16 [experts, K, N], and EXPERTS.PROJECTION_bias
//                         [experts, N]: the experts of a layer, as classes have them that read
//                         them in no other way (gpt-oss, Llama 4, Qwen3-VL)

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "prepack/kernels/kernels.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kElementBytes = 2;

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

Eligibility EligiblePlain(const PackRequest& request) {
  return AllOf({DequantizedWeights(request), StoredByOutputs(request), BiasIsFloat(request)});
}

Eligibility EligibleConv1d(const PackRequest& request) {
  return AllOf({DequantizedWeights(request), StoredByInputs(request), BiasIsFloat(request)});
}

Eligibility EligibleStacks(const PackRequest& request) {
  return AllOf({DequantizedWeights(request), ExpertsOnly(request), BiasIsFloat(request)});
}

// The parameters are the stacks themselves, and no module has them.
std::string StackName(std::string_view module, const PartSpec& part) {
  return part.role == PartRole::kBias ? fmt::format("{}_bias", module) : std::string(module);
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
    .eligible = EligiblePlain,
    .weight = PlainWeight(DType::kBF16),
    .bias = symbol::kAsActivations,
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
    .weight = {.dtype = DType::kBF16,
               .shape = {symbol::kK, symbol::kN},
               .by_outputs = DivisionRow::Along(1, 1),
               .by_inputs = DivisionRow::Along(0, 1)},
    .bias = symbol::kAsActivations,
    .cut = CutByInputs,
    .weight_bit = WeightBitConv1d,
    .place_weight = PlaceWeightConv1d,
    .pack_codes = PackConv1d,
    .unpack_codes = UnpackConv1d,
};

constinit const Layout kBf16Experts = {
    .id = "bf16/experts",
    .version = 1,
    .target = "bf16",
    .consumer = "classes whose experts are one tensor",
    .mirrors = "Hugging Face transformers 5.23.0, models/gpt_oss/modeling_gpt_oss.py",
    .schemes = "dequantized weights in bf16, 16-bit activations",
    .constraints = "the experts of a layer together",
    .isa = "any",
    .address = "element k · N + n of an expert",
    .notes = "only for models whose class reads no single experts",
    .fingerprint = "20024c8ba59a5bc6f491a8ad714fb758",
    .for_dequantized = true,
    .for_experts = true,
    .stacks_experts = true,
    .eligible = EligibleStacks,
    .weight = {.dtype = DType::kBF16,
               .shape = {symbol::kK, symbol::kN},
               .by_outputs = DivisionRow::Along(1, 1),
               .by_inputs = DivisionRow::Along(0, 1)},
    .bias = symbol::kAsActivations,
    .tensor_name = StackName,
    .cut = CutByInputs,
    .weight_bit = WeightBitConv1d,
    .place_weight = PlaceWeightConv1d,
    .pack_codes = PackConv1d,
    .unpack_codes = UnpackConv1d,
};

// vllm-cpu/bf16-vnni: bf16 weights for torch.ops._C.weight_packed_linear of vLLM's CPU backend:
// what modules become that no kernel for quantized weights takes (--fallback dequantize). Mirrors
// vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm.cpp.
//
// weight, BF16 [N, K]: per 32 output channels, for every two input channels those of the 32 side by
// side (elements of two bytes):
//
//     element  0            2            …  64                …  32·K
//              n0k0 n0k1    n1k0 n1k1    …  n0k2 n0k3  …      …  n32k0 n32k1  …
//
// No scales: they are multiplied in. bias, f32.

namespace {

constexpr uint64_t kWidth = 32;
constexpr uint64_t kUnit = 2 * kElementBytes;

// vLLM packs the plain weights of experts itself.
Eligibility NoExpert(const PackRequest& request) {
  if (!request.expert()) return Eligibility::Yes();
  return Eligibility::No("the module is an expert: the op runs single linear layers");
}

Eligibility EligibleVnni(const PackRequest& request) {
  return AllOf({
      DequantizedWeights(request),
      NoExpert(request),
      MultipleOf("N", request.n, kWidth, "packed in blocks of 32 output channels"),
      MultipleOf("K", request.k, kWidth, "packed 32 input channels at a time"),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasIsFloat(request),
  });
}

UnitBlocks Blocks(const PackRequest& request) {
  return {.width = kWidth,
          .unit = kUnit,
          .units = request.k * kElementBytes / kUnit,
          .block_bytes = kWidth * request.k * kElementBytes};
}

TileCut CutVnni(const PackRequest& /*request*/) {
  return {.rows = kWidth, .cols = 2, .strip_rows = 1};
}

uint64_t WeightBitVnni(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * Blocks(request).Byte(n, k * kElementBytes);
}

void PackCodesVnni(const PackJob& job, std::span<const std::byte> codes,
                   std::span<std::byte> packed) {
  PackUnits(job, Blocks(job.request), codes, packed);
}

void UnpackCodesVnni(const PackJob& job, std::span<const std::byte> packed,
                     std::span<std::byte> codes) {
  UnpackUnits(job, Blocks(job.request), packed, codes);
}

}  // namespace

constinit const Layout kVllmBf16Vnni = {
    .id = "vllm-cpu/bf16-vnni",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.weight_packed_linear",
    .mirrors = "vLLM 0.32.0, csrc/cpu/sgl-kernels/gemm.cpp",
    .schemes = "dequantized weights in bf16, 16-bit activations",
    .constraints = "N % 32 = 0, K % 32 = 0, bf16 activations",
    .isa = "AVX-512 with BF16",
    .address = "element (n / 32) · 32K + (k / 2) · 64 + (n % 32) · 2 + k % 2",
    .notes = "chosen only by --fallback dequantize",
    .fingerprint = "6284404cce48c1f3f2edcfb0f4f79d5a",
    .for_dequantized = true,
    .eligible = EligibleVnni,
    .weight = {.dtype = DType::kBF16,
               .shape = {symbol::kN, symbol::kK},
               .by_outputs = DivisionRow::Along(0, kWidth),
               .by_inputs = DivisionRow::Along(1, kWidth),
               .view = {{"N/32", [](const PackRequest& r) { return r.n / kWidth; }},
                        {"K/2", [](const PackRequest& r) { return r.k / 2; }},
                        2 * kWidth}},
    .cut = CutVnni,
    .weight_bit = WeightBitVnni,
    .place_weight = PlaceChannels,
    .pack_codes = PackCodesVnni,
    .unpack_codes = UnpackCodesVnni,
};

}  // namespace prepack
