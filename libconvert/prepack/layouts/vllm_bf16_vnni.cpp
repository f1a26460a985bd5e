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

#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kWidth = 32;
constexpr uint64_t kElementBytes = 2;
constexpr uint64_t kUnit = 2 * kElementBytes;

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      DequantizedWeights(request),
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

std::vector<PartSpec> Parts(const PackRequest& request) {
  std::vector<PartSpec> parts = {{.role = PartRole::kWeight,
                                  .name = "weight",
                                  .dtype = DType::kBF16,
                                  .shape = {request.n, request.k},
                                  .by_outputs = Division::Along(0, kWidth),
                                  .by_inputs = Division::Along(1, kWidth),
                                  .view = {request.n / kWidth, request.k / 2, kWidth * 2}}};
  AppendCommonParts(request, DType::kF32, parts);
  return parts;
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = kWidth, .cols = 2, .strip_rows = 1};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * Blocks(request).Byte(n, k * kElementBytes);
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  PackUnits(job, Blocks(job.request), codes, packed);
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
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
    .eligible = Eligible,
    .parts = Parts,
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
};

}  // namespace prepack
