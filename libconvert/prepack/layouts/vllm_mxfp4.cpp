// vllm-cpu/mxfp4: MXFP4 weights of experts for torch.ops._C.fused_experts_cpu of vLLM's CPU
// backend, which runs both layers of all experts in one call, with bf16 activations. The bytes are
// those of SGLang's CPU kernels, too. Mirrors vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm.cpp
// (convert_weight_packed and convert_scale_packed of U8) and moe.cpp.
//
// weight, U8 [N, K/2]: blocks of 32 output channels, one after the other; in a block, 32 bytes for
// every two input channels; in a byte, channels n (low half) and n + 16 (high half). Low half
// first:
//
//     byte   0          1          2          …  31           32         …
//            n0k0 n16k0 n0k1 n16k1 n1k0 n17k0 …  n15k1 n31k1  n0k2 n16k2 …
//
// weight_scale, U8 [N/32, K/32, 32]: exponents + 127. bias, f32.
//
// A layer of all experts is theirs one after the other: [E, N, K/2] and [E, N/32, K/32, 32]. Rows
// of the first layer stay as the model has them: gate and up alternate with swiglu-oai (gpt-oss),
// else all of gate come before up.

#include <fmt/format.h>

#include <cstdint>

#include "prepack/base/float_convert.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_halves.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

inline constexpr uint64_t kMxWidth = 32;  // output channels of a block
inline constexpr uint64_t kMxGroup = 32;  // input channels under one scale

// Position of a nibble: nibble p is in byte p / 2, low half when p is even.
constexpr uint64_t Mxfp4WeightNibble(uint64_t n, uint64_t k, uint64_t total_k) {
  const uint64_t block = n / kMxWidth * kMxWidth * total_k;
  return block + (k / 2 * kMxWidth + n % 16 * 2 + k % 2) * 2 + n % kMxWidth / 16;
}

static_assert(Mxfp4WeightNibble(0, 0, 32) == 0);
static_assert(Mxfp4WeightNibble(16, 0, 32) == 1);                // the other half of the byte
static_assert(Mxfp4WeightNibble(0, 1, 32) == 2);                 // the next input: the next byte
static_assert(Mxfp4WeightNibble(1, 0, 32) == 4);                 // the next channel
static_assert(Mxfp4WeightNibble(0, 2, 32) == 64);                // the next pair of inputs
static_assert(Mxfp4WeightNibble(32, 0, 32) == 32ULL * 32);       // the next block
static_assert(Mxfp4WeightNibble(63, 31, 32) == 64ULL * 32 - 1);  // the last one

static_assert(kMxWidth == kHalvesRows && kMxWidth == kParameterBlock);

Eligibility GroupsOfMxfp4(const PackRequest& request) {
  if (request.scheme.group_size == kMxGroup) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("one scale is for {} input channels: the kernel takes MXFP4, where one power of "
                  "two is for 32",
                  request.scheme.group_size));
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      Fp4Codes(request),
      ExpertsOnly(request),
      GroupsOfMxfp4(request),
      WideActivations(request),
      MultipleOf("K", request.k, kMxGroup, "the kernel takes 32 input channels at a time"),
      MultipleOf("N", request.n, kMxWidth, "packed in blocks of 32 output channels"),
      InputsInOrder(request),
      ActivationsBf16OrAbort(request),
      BiasIsFloat(request),
  });
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = kMxWidth, .cols = 2, .strip_rows = kMxWidth};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 4 * Mxfp4WeightNibble(n, k, request.k);
}

// Calls move(block of the panel, its place in the tile) for 32 output channels at a time.
template <typename Move>
void ForBlocks(const PackJob& job, Move move) {
  const size_t row_bytes = PanelRowBytes(CodeType::kF4E2M1, job.panel.cols);
  for (uint64_t row = 0; row < job.panel.rows; row += kMxWidth) {
    const uint64_t block = (job.panel.n0 - job.tile.n0 + row) * job.request.k / 2;
    move(row * row_bytes, block + HalvesBytes(job.panel.k0));
  }
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  const uint64_t cols = job.panel.cols;
  ForBlocks(job, [&](size_t from, size_t to) {
    Kernels().rows_to_halves(U8(codes.subspan(from).data()), cols / 2, cols,
                             U8(packed.subspan(to).data()));
  });
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  const uint64_t cols = job.panel.cols;
  ForBlocks(job, [&](size_t to, size_t from) {
    Kernels().halves_to_rows(U8(packed.subspan(from).data()), cols, cols / 2,
                             U8(codes.subspan(to).data()));
  });
}

// The kernel adds the exponent to that of the code in bf16, without a look at what it becomes: it
// wraps around, an exponent of 0 is no subnormal to it, and one of 255 no infinity. Zero is zero
// under any scale.
bool Misreads(float scale, uint8_t code) {
  const float value = F4E2M1ToF32(code);
  if (value == 0) return false;
  const auto added = static_cast<uint16_t>((F32ToF8E8M0(scale) - 127) * (1 << 7));
  const auto read = static_cast<uint16_t>(F32ToBF16(value) + added);
  const auto exponent = static_cast<uint16_t>(read >> 7 & 0xFF);
  const double wanted = static_cast<double>(value) * static_cast<double>(scale);
  return exponent == 0 || exponent == 0xFF || static_cast<double>(BF16ToF32(read)) != wanted;
}

}  // namespace

constinit const Layout kVllmMxfp4 = {
    .id = "vllm-cpu/mxfp4",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.fused_experts_cpu",
    .mirrors = "vLLM 0.32.0, csrc/cpu/sgl-kernels/gemm.cpp and moe.cpp",
    .schemes = "MXFP4 weights of experts, 16-bit activations",
    .constraints = "experts only, N % 32 = 0, K % 32 = 0, groups of 32, bf16 activations",
    .isa = "AVX-512 with BF16; vLLM itself picks the op only with AMX",
    .needs = {CpuFeature::kAvx512, CpuFeature::kBf16},
    .address =
        "byte (n / 32) · 16K + (k / 2) · 32 + (n % 16) · 2 + k % 2, low half when n / 16 is even",
    .notes =
        "the kernel misreads exponents outside -125 to 125 under some codes: such modules are "
        "refused",
    .fingerprint = "f66d99b20452d499a80dc7b7bea38138",
    .for_experts = true,
    .stacks_experts = true,
    .eligible = Eligible,
    .weight = {.dtype = DType::kU8,
               .shape = {symbol::kN, {"K/2", [](const PackRequest& r) { return r.k / 2; }}},
               .by_outputs = DivisionRow::Along(0, kMxWidth),
               .by_inputs = DivisionRow::Along(1, kMxGroup),
               .view = {{"N/32", [](const PackRequest& r) { return r.n / kMxWidth; }},
                        {"K/2", [](const PackRequest& r) { return r.k / 2; }},
                        kMxWidth}},
    .scales = {.order = ParameterOrder::kBlocks, .value = DType::kF8E8M0, .stored = DType::kU8},
    .scale_limits = {.least = 0x1p-125F, .most = 0x1p125F, .misreads = Misreads},
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
};

}  // namespace prepack
