// kt/amxint4: 4-bit experts for KTransformers' CPU kernels, method AMXINT4, which quantize
// activations per token, symmetric, themselves. What kt_amxint8.cpp says of names, of shares and of
// buffers holds here, too. Mirrors kt-kernel 0.7.2: operators/amx/la/amx_buffers.hpp,
// BufferBInt4Impl, and amx_kernels.hpp, GemmKernel224Int4.
//
// weight, I8 [N · K / 2]: the tiles of kt/amxint8 with 128 input channels in place of 64, in blocks
// of 128 output channels (the last may have fewer) by 3584 input channels (the last may have
// fewer). A byte holds input channel k of the first 64 (low half) and k + 64, in two's complement:
//
//     byte   0         1         …  4         …  64        …  1024        …  2048
//            n0k0      n0k1      …  n1k0      …  n0k4      …  n16k0       …  n0k128
//            n0k64     n0k65     …  n1k64     …  n0k68     …  n16k64      …  n0k192
//
// weight_scale, f32 [N]: a sixteenth of the scale, because the kernel leaves codes in the upper
// halves of bytes. A scale that f32 does not hold a sixteenth of exactly is refused.
//
// The kernel without AMX takes a code of -8 for +8 where x is negative, as that of kt/amxint8 does
// with -128. kt-kernel's own converter makes no such code; here modules with one are refused while
// they are packed.
//
// N of one layer of an expert is K of another, so that whole experts have multiples of 128 in both.

#include <array>

#include "prepack/kernels/kernels.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/layouts/kt_experts.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr KtForm kInt4Form{.bits = 4, .block_rows = 128};

constexpr uint64_t Int4BitOf(uint64_t rows, uint64_t inputs, uint64_t n, uint64_t k) {
  return 8 * KtByteOf(kInt4Form, rows, inputs, n, k) + k / kKtRowBytes % 2 * 4;
}

static_assert(Int4BitOf(128, 128, 0, 1) == 8);
static_assert(Int4BitOf(128, 128, 0, 64) == 4);  // the other half of the byte
static_assert(Int4BitOf(128, 128, 1, 0) == uint64_t{8} * 4);
static_assert(Int4BitOf(128, 128, 0, 4) == uint64_t{8} * 64);
static_assert(Int4BitOf(128, 128, 16, 0) == uint64_t{8} * 1024);
static_assert(Int4BitOf(128, 256, 0, 128) == uint64_t{8} * 2048);
static_assert(Int4BitOf(128, 256, 32, 0) == uint64_t{4} * 32 * 256);
static_assert(Int4BitOf(160, 256, 128, 128) ==
              uint64_t{4} * 128 * 256 + uint64_t{8} * 2048);  // the last block has 32 channels
static_assert(Int4BitOf(128, 3712, 0, 3584) == uint64_t{4} * 128 * 3584);  // a second block
static_assert(Int4BitOf(128, 3712, 127, 3711) == uint64_t{4} * 128 * 3712 - 4);

// What kt-kernel does with other weights: it takes some as the checkpoint stores them.
std::string_view WhatElseReadsThem(const Scheme& scheme) {
  switch (scheme.code) {
    case CodeType::kF8E4M3:
      return "kt-kernel reads FP8 experts from the checkpoint itself (--kt-method FP8 for blocks "
             "of 128 x 128, FP8_PERCHANNEL for one scale per channel)";
    case CodeType::kF4E2M1:
      return "kt-kernel reads MXFP4 experts of DeepSeek V4 and NVFP4 experts of ModelOpt from the "
             "checkpoint itself (--kt-method MXFP4, NVFP4)";
    default:
      return "";
  }
}

constexpr std::string_view kReadsGroups =
    "kt-kernel reads symmetric 4-bit experts in groups with bf16 scales from a checkpoint of "
    "compressed-tensors itself (--kt-method RAWINT4), which --target compressed-tensors makes of "
    "AWQ, GPTQ and AutoRound";

Eligibility EligibleInt4(const PackRequest& request) {
  return KtTakes(kInt4Form, request,
                 WithHint(FourBitCodes(request), WhatElseReadsThem(request.scheme)),
                 WithHint(ScalesPerChannelOrTensor(request), kReadsGroups));
}

uint64_t DivisibleInt4(const PackRequest& request) {
  return KtDivisible(kInt4Form, request);
}

TileCut CutInt4(const PackRequest& /*request*/) {
  return {.rows = kInt4Form.block_rows, .cols = kInt4Form.tile_inputs(), .strip_rows = 1};
}

uint64_t WeightBitInt4(const PackRequest& request, uint64_t n, uint64_t k) {
  return Int4BitOf(request.n, request.k, n, k);
}

float SixteenthOfScale(const PackRequest& /*request*/) {
  return 0.0625F;
}

// Rows of a tile as bytes of two input channels that are 64 apart, and as a panel has them: two
// neighbours in a byte, unsigned. Both take 64 bytes.
using HalfRows = std::array<uint8_t, kKtHalfRows * kKtRowBytes>;

constexpr uint64_t kPairs = kKtRowBytes / 2;  // bytes of a panel that hold 64 input channels
constexpr uint8_t kSigns = 0x88;              // codes less 8 are codes XOR 8, in two's complement

void RowToHalves(const uint8_t* row, uint8_t* halves) {
  for (uint64_t i = 0; i < kPairs; ++i) {
    const auto low = static_cast<uint8_t>(row[i] ^ kSigns);
    const auto high = static_cast<uint8_t>(row[kPairs + i] ^ kSigns);
    halves[2 * i] = static_cast<uint8_t>((low & 0x0F) | high << 4);
    halves[2 * i + 1] = static_cast<uint8_t>(low >> 4 | (high & 0xF0));
  }
}

void HalvesToRow(const uint8_t* halves, uint8_t* row) {
  for (uint64_t i = 0; i < kPairs; ++i) {
    const uint8_t even = halves[2 * i];
    const uint8_t odd = halves[2 * i + 1];
    row[i] = static_cast<uint8_t>(((even & 0x0F) | odd << 4) ^ kSigns);
    row[kPairs + i] = static_cast<uint8_t>((even >> 4 | (odd & 0xF0)) ^ kSigns);
  }
}

constexpr uint64_t kWordsOfRow = kKtRowBytes / kKtInputsPerWord;

void PackInt4(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  TransposeUnitsFn* const transpose = TransposeUnits(kKtInputsPerWord);
  const uint64_t row_bytes = job.panel.cols / 2;
  ForKtHalves(kInt4Form, job, [&](size_t from, size_t to) {
    HalfRows rows;
    for (uint64_t row = 0; row < kKtHalfRows; ++row) {
      RowToHalves(U8(&codes[from + row * row_bytes]), &rows[row * kKtRowBytes]);
    }
    transpose(std::as_bytes(std::span(rows)).data(), kKtRowBytes, kKtHalfRows, kWordsOfRow,
              &packed[to], kKtWordStride);
  });
}

void UnpackInt4(const PackJob& job, std::span<const std::byte> packed, std::span<std::byte> codes) {
  TransposeUnitsFn* const transpose = TransposeUnits(kKtInputsPerWord);
  const uint64_t row_bytes = job.panel.cols / 2;
  ForKtHalves(kInt4Form, job, [&](size_t to, size_t from) {
    HalfRows rows;
    transpose(&packed[from], kKtWordStride, kWordsOfRow, kKtHalfRows,
              std::as_writable_bytes(std::span(rows)).data(), kKtRowBytes);
    for (uint64_t row = 0; row < kKtHalfRows; ++row) {
      HalvesToRow(&rows[row * kKtRowBytes], U8(&codes[to + row * row_bytes]));
    }
  });
}

}  // namespace

constinit const Layout kKtAmxInt4 = {
    .id = "kt/amxint4",
    .version = 1,
    .target = "kt",
    .consumer = "kt_kernel_ext.moe.AMXInt4_MOE",
    .mirrors = "kt-kernel 0.7.2, operators/amx/la/amx_buffers.hpp (BufferBInt4Impl)",
    .schemes =
        "w4a8 experts with dynamic symmetric activations, symmetric weights, channel or tensor",
    .constraints = "experts only, N % 32 = 0, K % 128 = 0, bf16 activations",
    .isa = "AVX-512 with BW; AMX or VNNI make it fast",
    .needs = {CpuFeature::kAvx512},
    .wants = {CpuFeature::kVnni},
    .address =
        "nb = n / 128 · 128, nbs = min(128, N − nb), kb = k / 3584 · 3584, "
        "kbs = min(3584, K − kb): "
        "byte (nb · K + kb · nbs + (n − nb) / 32 · 32 · kbs) / 2 + (k − kb) / 128 · 2048 + "
        "n % 32 / 16 · 1024 + k % 64 / 4 · 64 + n % 16 · 4 + k % 4, low half when k / 64 is even",
    .notes =
        "a sixteenth of each scale is stored; the kernel without AMX takes a code of -8 for +8 "
        "where "
        "the activation is negative, so modules with such codes are refused",
    .fingerprint = "b435cf5f1ff80d62033b81df4168141a",
    .for_experts = true,
    .whole_mixtures = true,
    .eligible = EligibleInt4,
    .weight = {.dtype = DType::kI8,
               .shape = {{"N · K / 2", [](const PackRequest& r) { return r.n * r.k / 2; }}},
               .by_outputs = DivisionRow::Along(0, {"32, 128 or N", DivisibleInt4}),
               .by_inputs = DivisionRow::Never(),
               .view = {symbol::kN, {"K / 2", [](const PackRequest& r) { return r.k / 2; }}}},
    .scales = {.order = ParameterOrder::kChannels, .factor = SixteenthOfScale},
    .misread_code = MisreadCode{.code = -8,
                                .how = "as +8 where the activation is negative",
                                .expected = "codes from -7 to 7"},
    .is_named = IsNamedByKt,
    .tensor_name = KtTensorName,
    .cut = CutInt4,
    .weight_bit = WeightBitInt4,
    .place_weight = PlaceChannels,
    .pack_codes = PackInt4,
    .unpack_codes = UnpackInt4,
};

}  // namespace prepack
