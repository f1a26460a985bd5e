// vllm-cpu/wna16: W4A16 for torch.ops._C.cpu_gemm_wna16 of vLLM's CPU backend.
// Mirrors vLLM 0.32.0: csrc/cpu/cpu_wna16.cpp, csrc/cpu/micro_gemm/cpu_micro_gemm_vec.hpp and
// vllm/model_executor/kernels/linear/mixed_precision/cpu.py.
//
// weight, I32 [N/16, 2K]: per block of 16 output channels and per input channel one 64-bit word,
// channel 16b in its lowest nibble. For block 0, low nibble of each byte first:
//
//     byte   0          1                7          8
//            n0k0 n1k0  n2k0 n3k0  …  n14k0 n15k0   n0k1 n1k1  …
//
// Codes are unsigned also when symmetric: the kernel then subtracts 8.
// weight_scale, [G, N], bf16 or f16 as the activations are.
// weight_zero_point, I32 [G, N/8], only when asymmetric: nibble g·N + n, unsigned.

#include <cstdint>

#include "prepack/base/checked.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_transpose.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

inline constexpr uint64_t kWna16Block = 16;     // channels per 64-bit word
inline constexpr uint64_t kWna16Multiple = 32;  // of N and K, asked for by the kernel

// Position of a nibble: nibble p is in byte p / 2, low half when p is even.
constexpr uint64_t Wna16WeightNibble(uint64_t n, uint64_t k, uint64_t total_k) {
  return (n / kWna16Block * total_k + k) * kWna16Block + n % kWna16Block;
}

static_assert(Wna16WeightNibble(0, 0, 32) == 0);
static_assert(Wna16WeightNibble(1, 0, 32) == 1);            // the next channel: the next nibble
static_assert(Wna16WeightNibble(0, 1, 32) == 16);           // the next input: the next word
static_assert(Wna16WeightNibble(16, 0, 32) == 16ULL * 32);  // the next block
static_assert(Wna16WeightNibble(31, 31, 32) == 32ULL * 32 - 1);  // the last one

static_assert(kWna16Block == kTransposeRows);
constexpr uint64_t kWordBytes = kWna16Block / 2;  // the codes of a block for one input channel

Eligibility EvenGroups(const PackRequest& request) {
  const uint64_t group_size = request.scheme.group_size;
  if (group_size % 2 == 0 || group_size == request.k) return Eligibility::Yes();
  return Eligibility::No(
      "the group size is odd: groups must hold an even number of input channels");
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      WideActivations(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("K", request.k, kWna16Multiple, "the kernel takes 32 input channels at a time"),
      MultipleOf("N", request.n, kWna16Multiple, "the kernel takes 32 output channels at a time"),
      GroupsDivideK(request),
      EvenGroups(request),
      ActivationsOneOf(request, {DType::kBF16, DType::kF16}),
      BiasIsFloat(request),
  });
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = kWna16Multiple, .cols = 2, .strip_rows = kWna16Multiple};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 4 * Wna16WeightNibble(n, k, request.k);
}

// Wna16WeightNibble, block by block: nibble (k, n % 16) of a block is nibble n % 16 of its word k.
void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  const size_t row_bytes = PanelRowBytes(CodeType::kU4, job.panel.cols);
  for (uint64_t n = 0; n < job.panel.rows; n += kWna16Block) {
    const uint64_t block = (job.panel.n0 - job.tile.n0 + n) * job.request.k / 2;
    Kernels().rows_to_words(U8(codes.subspan(n * row_bytes).data()), row_bytes, job.panel.cols,
                            U8(packed.subspan(block + job.panel.k0 * kWordBytes).data()),
                            kWordBytes);
  }
}

// The codes of a block are side by side: its words change places as a whole.
void PackColumns(const PackJob& job, std::span<const std::byte> columns,
                 std::span<std::byte> packed) {
  const uint64_t first_block = (job.panel.n0 - job.tile.n0) / kWna16Block;
  const uint64_t block_bytes = job.request.k * kWordBytes;
  TransposeUnits(kWordBytes)(
      columns.data(), job.panel.rows / 2, job.panel.cols, job.panel.rows / kWna16Block,
      packed.subspan(first_block * block_bytes + job.panel.k0 * kWordBytes).data(), block_bytes);
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  const size_t row_bytes = PanelRowBytes(CodeType::kU4, job.panel.cols);
  for (uint64_t n = 0; n < job.panel.rows; n += kWna16Block) {
    const uint64_t block = (job.panel.n0 - job.tile.n0 + n) * job.request.k / 2;
    Kernels().words_to_rows(U8(packed.subspan(block + job.panel.k0 * kWordBytes).data()),
                            kWordBytes, job.panel.cols, row_bytes,
                            U8(codes.subspan(n * row_bytes).data()));
  }
}

}  // namespace

constinit const Layout kVllmWna16 = {
    .id = "vllm-cpu/wna16",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.cpu_gemm_wna16",
    .mirrors = "vLLM 0.32.0, csrc/cpu/cpu_wna16.cpp",
    .schemes = "w4a16, symmetric or asymmetric, group or channel",
    .constraints = "N % 32 = 0, K % 32 = 0, even groups that divide K, bf16 or f16 activations",
    .isa = "AVX-512 (with BF16 for full accuracy); vLLM's AVX2 library lacks the op",
    .needs = {CpuFeature::kAvx512},
    .wants = {CpuFeature::kBf16},
    .address = "nibble ((n / 16) · K + k) · 16 + n % 16",
    .notes = "codes are unsigned also when symmetric: the kernel then subtracts 8",
    .fingerprint = "2a9146febf6fd3afaa0fe04ddd7db52b",
    .expert_op = false,
    .eligible = Eligible,
    .weight = {.dtype = DType::kI32,
               .shape = {{"N/16", [](const PackRequest& r) { return r.n / kWna16Block; }},
                         {"2K", [](const PackRequest& r) { return 2 * r.k; }}},
               .by_outputs = DivisionRow::Along(0, kWna16Multiple),
               .by_inputs = DivisionRow::Along(1, kWna16Multiple)},
    .scales = {.order = ParameterOrder::kGroups,
               .value = symbol::kAsActivations,
               .stored = symbol::kAsActivations},
    .zero_points = {.order = ParameterOrder::kGroups, .dtype = DType::kI32, .bits = 4},
    .bias = symbol::kAsActivations,
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
    .pack_columns = PackColumns,
};

}  // namespace prepack
