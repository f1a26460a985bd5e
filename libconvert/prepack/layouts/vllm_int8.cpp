// vllm-cpu/int8-vnni: W8A8 for torch.ops._C.int8_scaled_mm_with_quant of vLLM's CPU backend, with
// activations quantized per token, symmetric, by the op.
// Mirrors vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm.cpp and gemm_int8.cpp.
//
// weight, I8 [N, K + 4]: per 32 output channels, 32 · K values and then a sum for each channel. For
// every four input channels, those of the 32 output channels side by side:
//
//     byte   0           4           …  128                …  32·K          32·K + 4
//            n0 k0…k3    n1 k0…k3    …  n0 k4…k7  n1 …     …  i32 sum(n0)   i32 sum(n1)  …
//
// The sums are 128 · Σ_k w(n, k): the kernel shifts activations to unsigned bytes.
// weight_scale, f32 [N]; one for the whole tensor is repeated. bias, f32.

#include "prepack/base/memory.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kWidth = 32;
constexpr uint64_t kUnit = 4;
constexpr int32_t kActivationShift = 128;

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      SymmetricWeights(request),
      DynamicInt8Activations(request),
      ScalesPerChannelOrTensor(request),
      MultipleOf("N", request.n, kWidth,
                 "packed in blocks of 32 output channels; vLLM accepts multiples of 16, and its "
                 "packer then aborts"),
      MultipleOf("K", request.k, kWidth, "packed 32 input channels at a time"),
      ActivationsBf16OrAbort(request),
      BiasIsFloat(request),
  });
}

UnitBlocks Blocks(const PackRequest& request) {
  return {.width = kWidth,
          .unit = kUnit,
          .units = request.k / kUnit,
          .block_bytes = kWidth * (request.k + sizeof(int32_t))};
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = kWidth, .cols = kUnit, .strip_rows = 1};
}

Placement PlaceWeight(const PackRequest& request, const PanelRange& tile) {
  const uint64_t row = request.k + sizeof(int32_t);
  return {{.offset = tile.n0 * row, .bytes = tile.rows * row}};
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  const UnitBlocks blocks = Blocks(job.request);
  Scratch<int32_t> row_sums(job.panel.rows, 0);
  PackUnits(job, blocks, codes, packed, row_sums);
  PackJob block = job;
  block.panel.rows = kWidth;
  for (uint64_t row = 0; row < job.panel.rows; row += kWidth) {
    const uint64_t begin = (job.panel.n0 - job.tile.n0 + row) / kWidth * blocks.block_bytes;
    AddCodeSums(block, kActivationShift, std::span(row_sums).subspan(row),
                packed.subspan(begin + kWidth * job.request.k));
  }
}

}  // namespace

constinit const Layout kVllmInt8Vnni = {
    .id = "vllm-cpu/int8-vnni",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.int8_scaled_mm_with_quant",
    .mirrors = "vLLM 0.32.0, csrc/cpu/sgl-kernels/gemm.cpp, gemm_int8.cpp",
    .schemes = "w8a8 with dynamic symmetric activations, symmetric weights, channel or tensor",
    .constraints = "N % 32 = 0, K % 32 = 0, bf16 activations",
    .isa = "AVX-512 with VNNI and BF16; vLLM itself picks the op only with AMX",
    .needs = {CpuFeature::kAvx512, CpuFeature::kVnni, CpuFeature::kBf16},
    .address = "byte (n / 32) · 32(K + 4) + (k / 4) · 128 + (n % 32) · 4 + k % 4",
    .notes = "after every 32 channels: i32 128 · Σ w for each of them",
    .fingerprint = "72ce775d7b6248b533a9a4c4fa27bf22",
    .stacks_experts = true,
    .eligible = Eligible,
    .weight = {.dtype = DType::kI8,
               .shape = {symbol::kN,
                         {"K + 4", [](const PackRequest& r) { return r.k + sizeof(int32_t); }}},
               .by_outputs = DivisionRow::Along(0, kWidth),
               .by_inputs = DivisionRow::Never()},  // the sums are over all of K
    .scales = {.order = ParameterOrder::kChannels},
    .cut = Cut,
    .weight_bit = InUnits<Blocks>::WeightBit,
    .place_weight = PlaceWeight,
    .weight_has_extras = true,
    .pack_codes = PackCodes,
    .unpack_codes = InUnits<Blocks>::Unpack,
};

// vllm-cpu/int8-plain: W8A8 for vLLM's oneDNN handler (create_onednn_scaled_mm_handler and
// onednn_scaled_mm), which takes plain weights and reorders them itself. For the activations that
// vllm-cpu/int8-vnni does not do: static, or with zero points.
// Mirrors vLLM 0.32.0: vllm/model_executor/kernels/linear/scaled_mm/cpu.py.
//
// weight, I8 [N, K], row-major. weight_scale, f32 [N].
// input_scale, f32 [1], of static activations; input_zero_point, i32 [1], when they have one.
// azp_adj, f32 [N] = Σ_k w · scale, when activations are dynamic or have zero points.
// bias in the dtype of the activations.

namespace {

Eligibility EligiblePlain(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      SymmetricWeights(request),
      Int8Activations(request),
      ScalesPerChannelOrTensor(request),
      BiasIsFloat(request),
  });
}

// What K, and any piece of it, is a multiple of.
constexpr Extent kInputsOfToken{"16 (static: 1)", [](const PackRequest& r) -> uint64_t {
                                  return r.scheme.activations.dynamic ? 16 : 1;
                                }};

Eligibility EligibleOnArm(const PackRequest& request) {
  if (Eligibility plain = EligiblePlain(request); !plain.ok) return plain;
  return MultipleOf("K", request.k, kInputsOfToken.Of(request),
                    "vLLM's quantizer for Arm looks for the range of a token 16 channels at a "
                    "time, and takes another one where some are left over, so it would compute "
                    "garbage");
}

constexpr Condition kDynamicOrAsymmetricActivations{
    "dynamic or asymmetric activations", [](const PackRequest& r) {
      return r.scheme.activations.dynamic || !r.scheme.activations.symmetric;
    }};

constexpr Layout PlainInt8(std::string_view id, std::string_view target) {
  return {
      .id = id,
      .version = 1,
      .target = target,
      .consumer = "torch.ops._C.create_onednn_scaled_mm_handler, onednn_scaled_mm",
      .mirrors = "vLLM 0.32.0, vllm/model_executor/kernels/linear/scaled_mm/cpu.py",
      .schemes =
          "w8a8 with dynamic or static, symmetric or asymmetric activations, symmetric "
          "weights, channel or tensor",
      .constraints = "any N and K",
      .address = "byte n · K + k",
      .fingerprint = "8b8ec7cb48ef05e1015520d93b71449d",
      .expert_op = false,
      .static_activations = true,
      .eligible = EligiblePlain,
      .weight = PlainWeight(DType::kI8),
      .scales = {.order = ParameterOrder::kChannels},
      .weight_sums = {.name = "azp_adj", .when = kDynamicOrAsymmetricActivations},
      .bias = symbol::kAsActivations,
      .cut = CutAnywhere,
      .weight_bit = RowMajorWeightBit,
      .place_weight = PlaceChannels,
      .pack_codes = PackPlain,
      .unpack_codes = UnpackPlain,
  };
}

}  // namespace

constinit const Layout kVllmInt8Plain = [] {
  Layout row = PlainInt8("vllm-cpu/int8-plain", "vllm-cpu");
  row.isa =
      "any with VNNI (without, oneDNN's sums saturate); the handler reorders the weights for the "
      "CPU when it loads them";
  row.needs = {CpuFeature::kVnni};
  return row;
}();

// vllm-arm/int8-plain: the same bytes for the same op on Arm CPUs, which is what vLLM runs there
// for all kinds of activations. Its quantizer cuts fractions off there.
constinit const Layout kVllmArmInt8Plain = [] {
  Layout row = PlainInt8("vllm-arm/int8-plain", "vllm-arm");
  row.constraints = "any N; K % 16 = 0 with dynamic activations";
  row.notes = "vLLM's quantizer for Arm cuts fractions off";
  row.cuts_fractions = true;
  row.weight.by_inputs = DivisionRow::Along(1, kInputsOfToken);
  row.eligible = EligibleOnArm;
  row.isa =
      "any Arm, fast with I8MM; the handler reorders the weights for the CPU when it loads them";
  row.wants = {CpuFeature::kI8mm};
  return row;
}();

}  // namespace prepack
