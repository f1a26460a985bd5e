// Layouts for zentorch on AMD CPUs.

#include <algorithm>

#include "prepack/base/memory.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

// Scales as vLLM gives them to zentorch's ops, which take f32, too.
constexpr StoredDType kBF16OrExact{"BF16; F32 with --scales exact", [](const PackRequest& r) {
                                     return r.exact_scales ? DType::kF32 : DType::kBF16;
                                   }};

}  // namespace

// zentorch/woq: W4A16 for torch.ops.zentorch.zentorch_woq_linear.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/WOQ_Linear.cpp and WeightReorder.cpp, as called by vLLM
// 0.32.0, vllm/model_executor/kernels/linear/mixed_precision/zentorch.py.
//
// weight, I32 [N, K/8]: row-major nibbles, even input channel in the low half (low nibble first):
//
//     byte   0          1          …  K/2
//            n0k0 n0k1  n0k2 n0k3  …  n1k0 n1k1  …
//
// Symmetric: two's complement (code − 8) & 15, which is code XOR 8. Asymmetric: the unsigned code.
// The consumer passes the transposed view [K/8, N].
// weight_scale, bf16 [G, N]. weight_zero_point, I8 [G, N] with values 0 … 15, if and only if
// asymmetric: its presence is what selects unsigned codes. A bf16 tensor of that name would change
// the formula, so none is ever written.

namespace {

constexpr uint64_t kCodesPerWord = 8;

Eligibility EligibleWoq(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      WideActivations(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("K", request.k, kCodesPerWord, "eight codes share a 32-bit word"),
      GroupsDivideK(request),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasIsFloat(request),
  });
}

TileCut Cut4Bits(const PackRequest& /*request*/) {
  return {.rows = 1, .cols = 2, .strip_rows = 1};
}

// Code XOR 8 in both nibbles of a byte when symmetric, the code itself when not.
std::byte CodeMask(const PackRequest& request) {
  return request.scheme.symmetric ? std::byte{0x88} : std::byte{0};
}

void PackCodesWoq(const PackJob& job, std::span<const std::byte> codes,
                  std::span<std::byte> packed) {
  PackRowMajor(job, CodeMask(job.request), codes, packed);
}

void UnpackCodesWoq(const PackJob& job, std::span<const std::byte> packed,
                    std::span<std::byte> codes) {
  UnpackRowMajor(job, CodeMask(job.request), packed, codes);
}

}  // namespace

constinit const Layout kZentorchWoq = {
    .id = "zentorch/woq",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_woq_linear",
    .mirrors = "zentorch 2.13.0.1, src/cpu/cpp/WOQ_Linear.cpp",
    .schemes = "w4a16, symmetric or asymmetric, group or channel",
    .constraints = "K % 8 = 0, groups that divide K, bf16 activations",
    .isa = "AMD CPU with AVX-512",
    .needs = {CpuFeature::kAvx512, CpuFeature::kAmd},
    .address = "nibble n · K + k",
    .notes =
        "symmetric codes are two's complement (code XOR 8), asymmetric ones unsigned; the "
        "consumer reorders the weights once more at the first call",
    .fingerprint = "9289e960e382bd625dbd2e000b4eeddb",
    .expert_op = false,
    .eligible = EligibleWoq,
    .weight = {.dtype = DType::kI32,
               .shape = {symbol::kN,
                         {"K/8", [](const PackRequest& r) { return r.k / kCodesPerWord; }}},
               .by_outputs = DivisionRow::Along(0, 1),
               .by_inputs = DivisionRow::Along(1, kCodesPerWord)},
    .scales = {.order = ParameterOrder::kGroups, .value = kBF16OrExact, .stored = kBF16OrExact},
    .zero_points = {.order = ParameterOrder::kGroups, .dtype = DType::kI8, .bits = 8},
    .bias = DType::kBF16,
    .cut = Cut4Bits,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackCodesWoq,
    .unpack_codes = UnpackCodesWoq,
};

// zentorch/da8w4: W4A8 for torch.ops.zentorch.zentorch_dynamic_qlinear, with activations quantized
// per token, symmetric, by the op. What vLLM picks on AMD CPUs for symmetric 4-bit weights, also
// where the checkpoint says 16-bit activations.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/DynamicQLinear.cpp, as called by vLLM 0.32.0,
// vllm/model_executor/kernels/linear/mixed_precision/zentorch.py.
//
// weight, I8 [N, K/2]: the same bytes as symmetric zentorch/woq: row-major nibbles, even input
// channel in the low half, two's complement (code XOR 8).
// weight_scale, bf16 or f32 [G, N]. bias, bf16.

namespace {

constexpr std::byte kSignBits{0x88};

Eligibility EligibleDa8w4(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      DynamicInt8Activations(request),
      SymmetricWeights(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("K", request.k, kCodesPerWord, "eight codes share a 32-bit word"),
      GroupsDivideK(request),
      GroupsOfFours(request),
      ActivationsOneOf(request, {DType::kBF16}),
      BiasIsFloat(request),
  });
}

void PackCodesDa8w4(const PackJob& job, std::span<const std::byte> codes,
                    std::span<std::byte> packed) {
  PackRowMajor(job, kSignBits, codes, packed);
}

void UnpackCodesDa8w4(const PackJob& job, std::span<const std::byte> packed,
                      std::span<std::byte> codes) {
  UnpackRowMajor(job, kSignBits, packed, codes);
}

}  // namespace

constinit const Layout kZentorchDa8w4 = {
    .id = "zentorch/da8w4",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_dynamic_qlinear",
    .mirrors = "zentorch 2.13.0.1, src/cpu/cpp/DynamicQLinear.cpp",
    .schemes = "w4a8 with dynamic symmetric activations, symmetric weights, group or channel",
    .constraints = "K % 8 = 0, groups of a multiple of 4 that divide K, bf16 activations",
    .isa = "AMD CPU with AVX-512",
    .needs = {CpuFeature::kAvx512, CpuFeature::kAmd},
    .address = "nibble n · K + k",
    .notes =
        "two's complement (code XOR 8); the consumer reorders the weights once more at the "
        "first call",
    .fingerprint = "b6de090e2638673fefada29e5a3745da",
    .stacks_experts = true,
    .eligible = EligibleDa8w4,
    .weight = {.dtype = DType::kI8,
               .shape = {symbol::kN, {"K/2", [](const PackRequest& r) { return r.k / 2; }}},
               .by_outputs = DivisionRow::Along(0, 1),
               .by_inputs = DivisionRow::Along(1, kCodesPerWord)},
    .scales = {.order = ParameterOrder::kGroups, .value = kBF16OrExact, .stored = kBF16OrExact},
    .bias = DType::kBF16,
    .cut = Cut4Bits,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackCodesDa8w4,
    .unpack_codes = UnpackCodesDa8w4,
};

// zentorch/int8: W8A8 for torch.ops.zentorch.zentorch_dynamic_qlinear, with activations quantized
// per token, symmetric, by the op.
// Mirrors zentorch 2.13.0.1: src/cpu/cpp/DynamicQLinear.cpp, as called by vLLM 0.32.0,
// vllm/model_executor/kernels/linear/scaled_mm/zentorch.py.
//
// weight, I8 [N, K], row-major. weight_scale [N], bf16 as vLLM casts it, or f32, with which results
// are 0.1 to 0.4 dB better. bias, bf16.

namespace {

Eligibility EligibleInt8(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      SymmetricWeights(request),
      DynamicInt8Activations(request),
      ScalesPerChannelOrTensor(request),
      ActivationsOneOf(request, {DType::kBF16, DType::kF32}),
      BiasIsFloat(request),
  });
}

}  // namespace

constinit const Layout kZentorchInt8 = {
    .id = "zentorch/int8",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_dynamic_qlinear",
    .mirrors = "zentorch 2.13.0.1, src/cpu/cpp/DynamicQLinear.cpp",
    .schemes = "w8a8 with dynamic symmetric activations, symmetric weights, channel or tensor",
    .constraints = "any N and K, bf16 or f32 activations",
    .isa = "AMD CPU with AVX-512",
    .needs = {CpuFeature::kAvx512, CpuFeature::kAmd},
    .address = "byte n · K + k",
    .notes = "the consumer reorders the weights once more at the first call",
    .fingerprint = "9655458f2cb835e1864cc8fc146481a5",
    .stacks_experts = true,
    .eligible = EligibleInt8,
    .weight = PlainWeight(DType::kI8),
    .scales = {.order = ParameterOrder::kChannels, .value = kBF16OrExact, .stored = kBF16OrExact},
    .bias = DType::kBF16,
    .cut = CutAnywhere,
    .weight_bit = RowMajorWeightBit,
    .place_weight = PlaceChannels,
    .pack_codes = PackPlain,
    .unpack_codes = UnpackPlain,
};

// zentorch/int8-dlp: what AOCL-DLP's int8 kernel reads inside zentorch_dynamic_qlinear with
// is_weight_prepacked=True. Known and tested, but never chosen: vLLM does not use it, and it is
// private to AOCL-DLP. zentorch's own packer writes it only where K ≤ 2048 or N is small (up to
// 1024 on an AMD EPYC of Zen 5, below 512 on an Intel Xeon); beyond, it writes something else that
// the kernel does not expect (−14 dB; docs/upstream/faults.md). Mirrors zentorch 2.13.0.1,
// src/cpu/cpp/WeightReorder.cpp, with ZenDNN 6.0.1.
//
// weight, U8 [bytes]: N in panels of 64 output channels while so many are left, then one of the
// remaining whole sixteens, then one of 16 for the rest; K padded to a multiple of four. In a panel
// of width w that begins at channel c:
//
//     byte c · K4 + (k / 4) · 4w + (n − c) · 4 + k % 4
//
// then an i32 for each channel, padded to 16: 128 · Σ_k w(n, k). weight_scale, bf16 [N].

namespace {

constexpr uint64_t kWidest = 64;
constexpr uint64_t kNarrowest = 16;
constexpr uint64_t kUnit = 4;
constexpr int32_t kActivationShift = 128;

uint64_t PaddedN(uint64_t n) {
  return CeilDiv(n, kNarrowest) * kNarrowest;
}

uint64_t PaddedK(const PackRequest& request) {
  return CeilDiv(request.k, kUnit) * kUnit;
}

// A panel of channels that the kernel takes at a time.
struct Width {
  uint64_t first;  // channel
  uint64_t width;
};

// The one that channel n of a module with `total` channels is in.
Width WidthOf(uint64_t n, uint64_t total) {
  const uint64_t wide = total / kWidest * kWidest;
  if (n < wide) return {n / kWidest * kWidest, kWidest};
  const uint64_t sixteens = total / kNarrowest * kNarrowest;
  return n < sixteens ? Width{wide, sixteens - wide} : Width{sixteens, kNarrowest};
}

TileCut CutDlp(const PackRequest& /*request*/) {
  return {.rows = kWidest, .cols = kUnit, .strip_rows = 1};
}

uint64_t WeightBitDlp(const PackRequest& request, uint64_t n, uint64_t k) {
  const auto [first, width] = WidthOf(n, request.n);
  const uint64_t byte =
      first * PaddedK(request) + (k / kUnit * width + n - first) * kUnit + k % kUnit;
  return 8 * byte;
}

Placement PlaceWeightDlp(const PackRequest& request, const PanelRange& tile) {
  const uint64_t padded_k = PaddedK(request);
  const uint64_t rows = PaddedN(tile.rows);
  return {{.offset = tile.n0 * padded_k, .bytes = rows * padded_k},
          {.offset = PaddedN(request.n) * padded_k + tile.n0 * sizeof(int32_t),
           .bytes = rows * sizeof(int32_t)}};
}

// Calls visit(job of one width, its blocks, offset in the panel, offset in the tile).
template <typename Visit>
void ForWidths(const PackJob& job, Visit visit) {
  const uint64_t padded_k = PaddedK(job.request);
  const uint64_t end = job.panel.n0 + job.panel.rows;
  for (uint64_t n = job.panel.n0; n < end;) {
    const uint64_t width = WidthOf(n, job.request.n).width;
    PackJob piece = job;
    piece.panel.n0 = n;
    piece.panel.rows = std::min(width, end - n);
    piece.tile.n0 = n;
    const UnitBlocks blocks{
        .width = width, .unit = kUnit, .units = padded_k / kUnit, .block_bytes = width * padded_k};
    visit(piece, blocks, (n - job.panel.n0) * job.panel.cols, (n - job.tile.n0) * padded_k);
    n += width;
  }
}

void PackCodesDlp(const PackJob& job, std::span<const std::byte> codes,
                  std::span<std::byte> packed) {
  Scratch<int32_t> row_sums(job.panel.rows, 0);
  ForWidths(job, [&](const PackJob& piece, const UnitBlocks& blocks, size_t from, size_t to) {
    PackUnits(piece, blocks, codes.subspan(from), packed.subspan(to),
              std::span(row_sums).subspan(piece.panel.n0 - job.panel.n0));
  });
  const std::span<std::byte> sums = packed.subspan(PaddedN(job.tile.rows) * PaddedK(job.request));
  if (job.panel.n0 == job.tile.n0 && job.panel.k0 == 0) std::ranges::fill(sums, std::byte{0});
  AddCodeSums(job, kActivationShift, row_sums,
              sums.subspan((job.panel.n0 - job.tile.n0) * sizeof(int32_t)));
}

void UnpackCodesDlp(const PackJob& job, std::span<const std::byte> packed,
                    std::span<std::byte> codes) {
  ForWidths(job, [&](const PackJob& piece, const UnitBlocks& blocks, size_t from, size_t to) {
    UnpackUnits(piece, blocks, packed.subspan(to), codes.subspan(from));
  });
}

}  // namespace

constinit const Layout kZentorchInt8Dlp = {
    .id = "zentorch/int8-dlp",
    .version = 1,
    .target = "zentorch",
    .consumer = "torch.ops.zentorch.zentorch_dynamic_qlinear, is_weight_prepacked",
    .mirrors = "zentorch 2.13.0.1 with ZenDNN 6.0.1, src/cpu/cpp/WeightReorder.cpp",
    .schemes = "w8a8 with dynamic symmetric activations, symmetric weights, channel or tensor",
    .constraints = "any N and K, bf16 or f32 activations",
    .isa = "AMD CPU with AVX-512 VNNI",
    .needs = {CpuFeature::kAvx512, CpuFeature::kVnni, CpuFeature::kAmd},
    .address =
        "in the panel of w channels that begins at c: byte c · K4 + (k / 4) · 4w + "
        "(n − c) · 4 + k % 4, K4 = K rounded up to 4",
    .notes =
        "after the codes: i32 128 · Σ w per channel; never chosen: private to AOCL-DLP, and vLLM "
        "does not use it",
    .fingerprint = "7482ea19fad90652225ad74bb4e23a57",
    .offered = false,
    .eligible = EligibleInt8,
    .weight = {.dtype = DType::kU8,
               .shape = {{"N16 · (K4 + 4)",
                          [](const PackRequest& r) {
                            return PaddedN(r.n) * (PaddedK(r) + sizeof(int32_t));
                          }}}},  // not divided: the sums stand together at the end
    .scales = {.order = ParameterOrder::kChannels, .value = kBF16OrExact, .stored = kBF16OrExact},
    .bias = DType::kBF16,
    .cut = CutDlp,
    .weight_bit = WeightBitDlp,
    .place_weight = PlaceWeightDlp,
    .weight_has_extras = true,
    .pack_codes = PackCodesDlp,
    .unpack_codes = UnpackCodesDlp,
};

}  // namespace prepack
