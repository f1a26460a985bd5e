// kt/amxint8: int8 experts for KTransformers' CPU kernels, method AMXINT8, which quantize
// activations per token, symmetric, themselves. kt-kernel copies the bytes of the file into its
// buffers. Mirrors kt-kernel 0.7.2: operators/amx/la/amx_kernels.hpp, GemmKernel224Int8::BufferB.
//
// weight, I8 [N · K]: blocks of 64 output channels (the last may have 32), cut into blocks of 3584
// input channels (the last may have fewer), cut into steps of 32 output channels, cut into tiles of
// 64 input channels. A tile is what two tile registers of AMX hold: the first 16 output channels,
// then the other 16, and for every four input channels those of the 16 side by side:
//
//     byte   0           4           …  60           64          …  1024        …
//            n0 k0…k3    n1 k0…k3    …  n15 k0…k3    n0 k4…k7    …  n16 k0…k3   …
//
// weight_scale, f32 [N].
//
// The kernel for CPUs without AMX, which also computes short inputs on CPUs with it, multiplies
// |x| with the weight times the sign of x. In eight bits -(-128) is -128, so it takes a code of
// -128 for +128 where x is negative. kt-kernel's own converter makes no such code; here modules
// with one are refused while they are packed.
//
// kt-kernel finds tensors by names of its own: the layer's number, the projection, the expert, and
// the NUMA node, which computes a share of every expert:
//
//     blk.LAYER.ffn_{gate,up,down}_exps.EXPERT.numa.NODE.{weight,scale}
//
// It counts the experts of a layer in the folder, so it wants all of them.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/text.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

constexpr uint64_t kBlockRows = 64;
constexpr uint64_t kBlockInputs = 3584;
constexpr uint64_t kStepRows = 32;
constexpr uint64_t kTileInputs = 64;
constexpr uint64_t kHalfRows = 16;
constexpr uint64_t kInputsPerWord = 4;
constexpr uint64_t kHalfBytes = kHalfRows * kTileInputs;
constexpr uint64_t kWordStride = kHalfRows * kInputsPerWord;

// The byte of weight (n, k) of a module [rows, inputs].
constexpr uint64_t ByteOf(uint64_t rows, uint64_t inputs, uint64_t n, uint64_t k) {
  const uint64_t block_n = n / kBlockRows * kBlockRows;
  const uint64_t block_rows = std::min(kBlockRows, rows - block_n);
  const uint64_t block_k = k / kBlockInputs * kBlockInputs;
  const uint64_t block_inputs = std::min(kBlockInputs, inputs - block_k);
  const uint64_t step = (n - block_n) / kStepRows * kStepRows;
  const uint64_t tile = (k - block_k) / kTileInputs * kTileInputs;
  const uint64_t row = n % kStepRows;
  return block_n * inputs + block_k * block_rows + step * block_inputs + tile * kStepRows +
         row / kHalfRows * kHalfBytes + k % kTileInputs / kInputsPerWord * kWordStride +
         row % kHalfRows * kInputsPerWord + k % kInputsPerWord;
}

static_assert(ByteOf(64, 64, 1, 0) == 4);
static_assert(ByteOf(64, 64, 0, 4) == 64);
static_assert(ByteOf(64, 64, 16, 0) == 1024);
static_assert(ByteOf(64, 128, 0, 64) == 2048);
static_assert(ByteOf(64, 128, 32, 0) == uint64_t{32} * 128);
static_assert(ByteOf(96, 128, 64, 64) ==
              uint64_t{64} * 128 + 2048);                         // the last block has 32 channels
static_assert(ByteOf(64, 3648, 0, 3584) == uint64_t{64} * 3584);  // a second block of inputs
static_assert(ByteOf(64, 3648, 63, 3647) == uint64_t{64} * 3648 - 1);

// What kt-kernel does with other weights: it takes some as the checkpoint stores them.
std::string_view WhatElseReadsThem(const Scheme& scheme) {
  switch (scheme.code) {
    case CodeType::kU4:
      return "AMXINT4 has one scale per channel and no zero points, so it cannot hold grouped "
             "codes "
             "exactly. kt-kernel reads symmetric 4-bit experts with bf16 scales from a checkpoint "
             "of compressed-tensors itself (--kt-method RAWINT4), which --target "
             "compressed-tensors makes of AWQ, GPTQ and AutoRound";
    case CodeType::kF8E4M3:
      return "kt-kernel reads FP8 experts from the checkpoint itself (--kt-method FP8 for blocks "
             "of "
             "128 x 128, FP8_PERCHANNEL for one scale per channel)";
    case CodeType::kF4E2M1:
      return "kt-kernel reads MXFP4 experts of DeepSeek V4 and NVFP4 experts of ModelOpt from the "
             "checkpoint itself (--kt-method MXFP4, NVFP4)";
    default:
      return "";
  }
}

Eligibility Int8Codes(const PackRequest& request) {
  Eligibility verdict = SignedByteCodes(request);
  const std::string_view else_read = WhatElseReadsThem(request.scheme);
  if (verdict.ok || else_read.empty()) return verdict;
  verdict.kernel_reads = fmt::format("{}. {}", verdict.kernel_reads, else_read);
  verdict.reason = fmt::format("{}. {}", verdict.reason, else_read);
  return verdict;
}

Eligibility ExpertOfMixture(const PackRequest& request) {
  if (request.expert()) return Eligibility::Yes();
  return Eligibility::No(
      "the module is not an expert: kt-kernel runs the experts of a mixture, and the rest of the "
      "model runs elsewhere, from the original checkpoint");
}

Eligibility Named(const PackRequest& request) {
  if (!request.unnamed) return Eligibility::Yes();
  return Eligibility::No(
      "kt-kernel has no name for it: it knows gate_proj, up_proj and down_proj (w1, w3, w2) of the "
      "experts of a decoder's layers, each expert by itself");
}

Eligibility WholeMixture(const PackRequest& request) {
  if (!request.mixture_incomplete) return Eligibility::Yes();
  return Eligibility::No(
      "another expert of the layer cannot be packed, or is missing: kt-kernel reads all experts of "
      "a layer or none");
}

Eligibility NoBias(const PackRequest& request) {
  if (!request.bias_dtype) return Eligibility::Yes();
  return Eligibility::No("the module has a bias: the kernel adds none");
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      ExpertOfMixture(request),
      Int8Codes(request),
      SymmetricWeights(request),
      DynamicInt8Activations(request),
      ScalesPerChannelOrTensor(request),
      MultipleOf("N", request.n, kStepRows, "packed in steps of 32 output channels"),
      MultipleOf("K", request.k, kTileInputs, "packed 64 input channels at a time"),
      InputsInOrder(request),
      NoBias(request),
      ActivationsOneOf(request, {DType::kBF16}),
      Named(request),
      WholeMixture(request),
  });
}

// What a module is to kt-kernel.
struct KtExpert {
  uint64_t layer = 0;
  std::string_view projection;
  uint64_t expert = 0;
  uint64_t node = 0;
};

constexpr auto kProjections = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"gate_proj", "gate"},
    {"up_proj", "up"},
    {"down_proj", "down"},
    {"w1", "gate"},
    {"w3", "up"},
    {"w2", "down"},
});

std::optional<KtExpert> ParseKtExpert(std::string_view module) {
  const NodeShare share = ParseNodeShare(module);
  const auto expert = ParseExpertName(share.module);
  if (!expert || expert->stored_stacked || !IsDecoderModule(share.module)) return std::nullopt;
  const auto* const projection = std::ranges::find(kProjections, expert->projection,
                                                   &decltype(kProjections)::value_type::first);
  if (projection == kProjections.end()) return std::nullopt;
  return KtExpert{.layer = ParseLayerName(share.module)->index,
                  .projection = projection->second,
                  .expert = expert->index,
                  .node = share.node};
}

bool IsNamed(std::string_view module) {
  return ParseKtExpert(module).has_value();
}

std::string KtName(std::string_view module, const PartSpec& part) {
  const std::optional<KtExpert> name = ParseKtExpert(module);
  if (!name) return fmt::format("{}.{}", module, part.name);
  return fmt::format("blk.{}.ffn_{}_exps.{}.numa.{}.{}", name->layer, name->projection,
                     name->expert, name->node, part.role == PartRole::kScale ? "scale" : part.name);
}

// So many output channels lie together: those of a step where there is one block of input channels,
// else those of a block, if all blocks have 64.
uint64_t Divisible(const PackRequest& request) {
  if (request.k <= kBlockInputs) return kStepRows;
  return request.n % kBlockRows == 0 ? kBlockRows : request.n;
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = kBlockRows, .cols = kTileInputs, .strip_rows = 1};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * ByteOf(request.n, request.k, n, k);
}

// Calls move(place in the panel, place in the tile) for every half of 16 output channels by 64
// input channels. The panel begins at multiples of both, and so do its ends.
template <typename Move>
void ForHalves(const PackJob& job, Move move) {
  const uint64_t first = job.panel.n0 - job.tile.n0;
  for (uint64_t row = 0; row < job.panel.rows; row += kHalfRows) {
    for (uint64_t col = 0; col < job.panel.cols; col += kTileInputs) {
      move(row * job.panel.cols + col,
           ByteOf(job.tile.rows, job.request.k, first + row, job.panel.k0 + col));
    }
  }
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  TransposeUnitsFn* const transpose = TransposeUnits(kInputsPerWord);
  ForHalves(job, [&](size_t from, size_t to) {
    transpose(&codes[from], job.panel.cols, kHalfRows, kTileInputs / kInputsPerWord, &packed[to],
              kWordStride);
  });
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  TransposeUnitsFn* const transpose = TransposeUnits(kInputsPerWord);
  ForHalves(job, [&](size_t to, size_t from) {
    transpose(&packed[from], kWordStride, kTileInputs / kInputsPerWord, kHalfRows, &codes[to],
              job.panel.cols);
  });
}

}  // namespace

constinit const Layout kKtAmxInt8 = {
    .id = "kt/amxint8",
    .version = 1,
    .target = "kt",
    .consumer = "kt_kernel_ext.moe.AMXInt8_MOE",
    .mirrors = "kt-kernel 0.7.2, operators/amx/la/amx_kernels.hpp (GemmKernel224Int8::BufferB)",
    .schemes =
        "w8a8 experts with dynamic symmetric activations, symmetric weights, channel or tensor",
    .constraints = "experts only, N % 32 = 0, K % 64 = 0, bf16 activations",
    .isa = "AVX-512 with BW; AMX or VNNI make it fast",
    .needs = {CpuFeature::kAvx512},
    .wants = {CpuFeature::kVnni},
    .address =
        "nb = n / 64 · 64, nbs = min(64, N − nb), kb = k / 3584 · 3584, kbs = min(3584, K − kb): "
        "byte nb · K + kb · nbs + (n − nb) / 32 · 32 · kbs + (k − kb) / 64 · 2048 + "
        "n % 32 / 16 · 1024 + k % 64 / 4 · 64 + n % 16 · 4 + k % 4",
    .notes =
        "the kernel without AMX takes a code of -128 for +128 where the activation is "
        "negative, so modules with such codes are refused",
    .fingerprint = "d7712732a327fd15f782b3e507eed06c",
    .for_experts = true,
    .whole_mixtures = true,
    .eligible = Eligible,
    .weight = {.dtype = DType::kI8,
               .shape = {{"N · K", [](const PackRequest& r) { return r.n * r.k; }}},
               .by_outputs = DivisionRow::Along(0, {"32, 64 or N", Divisible}),
               .by_inputs = DivisionRow::Never(),
               .view = {symbol::kN, symbol::kK}},
    .scales = {.order = ParameterOrder::kChannels},
    .misread_code = MisreadCode{.code = -128,
                                .how = "as +128 where the activation is negative",
                                .expected = "codes from -127 to 127"},
    .is_named = IsNamed,
    .tensor_name = KtName,
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
};

}  // namespace prepack
