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

#include <algorithm>
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

// A stack in which a tile would be of some input channels of all experts would be in many pieces.
TileCut CutByExperts(const PackRequest& request) {
  return {.by_inputs = false, .rows = request.n_of_expert(), .cols = 1, .strip_rows = 1};
}

// The output channels of one expert that are among some of a stack.
struct ExpertRows {
  uint64_t expert = 0;
  uint64_t n0 = 0;     // in the stack
  uint64_t first = 0;  // in the expert
  uint64_t rows = 0;
};

template <typename Work>
void ForExpertsOf(const PackRequest& request, uint64_t n0, uint64_t rows, Work work) {
  const uint64_t of_one = request.n_of_expert();
  for (uint64_t end = n0 + rows; n0 < end;) {
    const uint64_t first = n0 % of_one;
    const uint64_t count = std::min(end - n0, of_one - first);
    work(ExpertRows{.expert = n0 / of_one, .n0 = n0, .first = first, .rows = count});
    n0 += count;
  }
}

// Of [experts, K, N]; a Conv1D is one expert.
uint64_t ElementByInputs(const PackRequest& request, const ExpertRows& part, uint64_t k) {
  return (part.expert * request.k + k) * request.n_of_expert() + part.first;
}

uint64_t WeightBitByInputs(const PackRequest& request, uint64_t n, uint64_t k) {
  uint64_t element = 0;
  ForExpertsOf(request, n, 1,
               [&](const ExpertRows& part) { element = ElementByInputs(request, part, k); });
  return 8 * kElementBytes * element;
}

// Whole experts lie side by side; pieces are of one.
Placement PlaceWeightByInputs(const PackRequest& request, const PanelRange& tile) {
  const uint64_t of_one = request.n_of_expert();
  const uint64_t row_bytes = request.k * kElementBytes;
  if (tile.cols == request.k && tile.n0 % of_one == 0 && tile.rows % of_one == 0) {
    return {{.offset = tile.n0 * row_bytes, .bytes = tile.rows * row_bytes}};
  }
  Placement placement;
  ForExpertsOf(request, tile.n0, tile.rows, [&](const ExpertRows& part) {
    placement.push_back({.offset = ElementByInputs(request, part, tile.k0) * kElementBytes,
                         .bytes = part.rows * kElementBytes,
                         .count = tile.cols,
                         .stride = of_one * kElementBytes});
  });
  return placement;
}

// A tile has, of each of its experts, a matrix [tile.cols, rows of the expert]. Calls
// move(row of the panel, rows, byte of the tile, bytes of a row of that matrix).
template <typename Move>
void ForPanelParts(const PackJob& job, Move move) {
  ForExpertsOf(job.request, job.tile.n0, job.tile.rows, [&](const ExpertRows& part) {
    const uint64_t begin = std::max(part.n0, job.panel.n0);
    const uint64_t end = std::min(part.n0 + part.rows, job.panel.n0 + job.panel.rows);
    if (begin >= end) return;
    const uint64_t element = (part.n0 - job.tile.n0) * job.tile.cols +
                             (job.panel.k0 - job.tile.k0) * part.rows + begin - part.n0;
    move(begin - job.panel.n0, end - begin, element * kElementBytes, part.rows * kElementBytes);
  });
}

void PackByInputs(const PackJob& job, std::span<const std::byte> codes,
                  std::span<std::byte> packed) {
  const size_t row_bytes = job.panel.cols * kElementBytes;
  ForPanelParts(job, [&](size_t row, size_t rows, size_t to, size_t stride) {
    TransposeUnits(kElementBytes)(codes.subspan(row * row_bytes).data(), row_bytes, rows,
                                  job.panel.cols, packed.subspan(to).data(), stride);
  });
}

void UnpackByInputs(const PackJob& job, std::span<const std::byte> packed,
                    std::span<std::byte> codes) {
  const size_t row_bytes = job.panel.cols * kElementBytes;
  ForPanelParts(job, [&](size_t row, size_t rows, size_t from, size_t stride) {
    TransposeUnits(kElementBytes)(packed.subspan(from).data(), stride, job.panel.cols, rows,
                                  codes.subspan(row * row_bytes).data(), row_bytes);
  });
}

}  // namespace

constinit const Layout kPlainBf16 = {
    .id = "plain/bf16",
    .version = 1,
    .target = kAnyTarget,
    .consumer = "any linear layer, any embedding",
    .mirrors = "Hugging Face transformers: MODULE.weight of an unquantized layer",
    .schemes = "dequantized weights in bf16, 16-bit activations",
    .constraints = "any N and K, no Conv1D",
    .isa = "any",
    .address = "element n · K + k",
    .notes = "chosen only by --scheme bf16 and --fallback dequantize",
    .fingerprint = "ec8dc038fc969fe23d903d3927b29fe2",
    .for_dequantized = true,
    .takes_embeddings = true,
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
        "chosen only by --scheme bf16 and --fallback dequantize; a loader that multiplies with "
        "[N, K], such as vLLM's, transposes the weight itself",
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
    .weight_bit = WeightBitByInputs,
    .place_weight = PlaceWeightByInputs,
    .pack_codes = PackByInputs,
    .unpack_codes = UnpackByInputs,
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
    .cut = CutByExperts,
    .weight_bit = WeightBitByInputs,
    .place_weight = PlaceWeightByInputs,
    .pack_codes = PackByInputs,
    .unpack_codes = UnpackByInputs,
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
    .needs = {CpuFeature::kAvx512, CpuFeature::kBf16},
    .address = "element (n / 32) · 32K + (k / 2) · 64 + (n % 32) · 2 + k % 2",
    .notes =
        "chosen by --fallback dequantize, and by --fuse for the head and the attention that no "
        "quantizer touched, from 1 MiB on",
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
    .weight_bit = InUnits<Blocks>::WeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = InUnits<Blocks>::Pack,
    .unpack_codes = InUnits<Blocks>::Unpack,
};

}  // namespace prepack
