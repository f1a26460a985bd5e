// vllm-cpu/int4-w4a8: W4A8 for torch.ops._C.int4_scaled_mm_cpu of vLLM's CPU backend, with
// activations quantized per token by the op. What vLLM picks on CPUs with AMX for 4-bit weights,
// also where the checkpoint says 16-bit activations.
// Mirrors vLLM 0.32.0: csrc/cpu/sgl-kernels/gemm_int4.cpp and
// vllm/model_executor/kernels/linear/mixed_precision/cpu.py.
//
// Blocks of 32 output by b = min(group size, 128) input channels, one after the other along K.
//
// weight, U8 [N/32, K/b, 16·b + 128]: of a block first the codes, 64 bytes for every four input
// channels; in a byte, channels c (low half) and c + 8 (high half). Low half first:
//
//     byte   0           1           …  4           …  32            …  64           …
//            n0k0 n8k0   n0k1 n8k1   …  n1k0 n9k0   …  n16k0 n24k0   …  n0k4 n8k4    …
//
// then for each of the 32 channels an i32: Σ over the block of (code − zero point).
// weight_scale, f32 [N/32, G, 32]: bf16 values widened, as vLLM feeds them.
// weight_zero_point, I8 [N/32, G, 32], always: 8 where the weights are symmetric. bias, f32.

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "prepack/base/checked.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_pairs.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

inline constexpr uint64_t kW4A8Width = 32;        // output channels per block
inline constexpr uint64_t kW4A8MostInputs = 128;  // input channels per block

// Input channels per block.
constexpr uint64_t W4A8BlockInputs(uint64_t group_size) {
  return group_size < kW4A8MostInputs ? group_size : kW4A8MostInputs;
}
// Bytes of a block of b input channels: codes, then sums.
constexpr uint64_t W4A8BlockBytes(uint64_t b) {
  return kW4A8Width * b / 2 + kW4A8Width * 4;
}
// Position of a nibble inside a block: nibble p is in byte p / 2, low half when p is even.
constexpr uint64_t W4A8BlockNibble(uint64_t n, uint64_t k) {
  const uint64_t byte = k / 4 * 64 + n / 16 * 32 + n % 8 * 4 + k % 4;
  return 2 * byte + n / 8 % 2;
}

static_assert(W4A8BlockNibble(0, 0) == 0);
static_assert(W4A8BlockNibble(8, 0) == 1);  // the other half of the byte
static_assert(W4A8BlockNibble(0, 1) == 2);  // the next input: the next byte
static_assert(W4A8BlockNibble(31, 3) == 127);

static_assert(kW4A8Width == kPairRows && kW4A8Width == kParameterBlock);
static_assert(kW4A8MostInputs <= kMostPairCols);
static_assert(W4A8BlockBytes(kW4A8MostInputs) == PairBlockBytes(kW4A8MostInputs));

Eligibility BlocksFit(const PackRequest& request) {
  const uint64_t group_size = request.scheme.group_size;
  if (group_size <= kW4A8MostInputs) return Eligibility::Yes();
  if (group_size == request.k) {
    return MultipleOf(
        "K", request.k, kW4A8MostInputs,
        "with one scale per output channel, K above 128 is cut into blocks of 128; "
        "vLLM does not check this, and the consumer aborts when it loads the weights");
  }
  return MultipleOf("the group size", group_size, kW4A8MostInputs,
                    "groups above 128 are cut into blocks of 128; vLLM does not check, and the "
                    "consumer would read past the scales and compute garbage");
}

// GPT-2 of vLLM 0.32 calls t() on every tensor named `weight` of such a layer. The plug-in undoes
// that where it gets as far as the plug-in.
Eligibility MatrixWhereTransposed(const PackRequest& request) {
  if (!request.inputs_first) return Eligibility::Yes();
  return Eligibility::No(
      "the layer is a Conv1D, whose weights vLLM transposes while it loads them: this layout's "
      "have three "
      "dimensions, at which it stops");
}

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      DynamicInt8Activations(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("K", request.k, kW4A8Width, "the kernel takes 32 input channels at a time"),
      MultipleOf("N", request.n, kW4A8Width, "packed in blocks of 32 output channels"),
      GroupsDivideK(request),
      GroupsOfFours(request),
      BlocksFit(request),
      MatrixWhereTransposed(request),
      ActivationsOneOf(request, {DType::kBF16, DType::kF16}),
      BiasIsFloat(request),
  });
}

uint64_t BlockInputs(const PackRequest& request) {
  return W4A8BlockInputs(request.scheme.group_size);
}

TileCut Cut(const PackRequest& request) {
  return {.rows = kW4A8Width, .cols = BlockInputs(request), .strip_rows = kW4A8Width};
}

uint64_t BlockBegin(const PackRequest& request, uint64_t n, uint64_t k) {
  const uint64_t b = BlockInputs(request);
  return (n / kW4A8Width * (request.k / b) + k / b) * W4A8BlockBytes(b);
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * BlockBegin(request, n, k) +
         4 * W4A8BlockNibble(n % kW4A8Width, k % BlockInputs(request));
}

Placement PlaceWeight(const PackRequest& request, const PanelRange& tile) {
  return {{.offset = BlockBegin(request, tile.n0, 0), .bytes = BlockBegin(request, tile.rows, 0)}};
}

// The zero points of a block row of the tile, brought side by side for each group: some groups at a
// time, in ascending order.
class ZeroPointRows {
 public:
  ZeroPointRows(const PackJob& job, uint64_t n)
      : groups_(job.request.groups()),
        from_(std::as_bytes(job.zero_points).subspan((n - job.tile.n0) * groups_)),
        transpose_(TransposeUnits(1)) {}

  const uint8_t* Of(uint64_t group) {
    if (group >= end_) {
      begin_ = group;
      end_ = std::min(group + kGroups, groups_);
      transpose_(from_.subspan(begin_).data(), groups_, kW4A8Width, end_ - begin_, rows_.data(),
                 kW4A8Width);
    }
    return U8(&rows_[(group - begin_) * kW4A8Width]);
  }

 private:
  static constexpr uint64_t kGroups = 64;
  uint64_t groups_;
  std::span<const std::byte> from_;
  TransposeUnitsFn* transpose_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  std::array<std::byte, kGroups * kW4A8Width> rows_;
};

// Takes the zero points from the sums of a block of b input channels, which are of its codes.
void SubtractZeroPoints(const uint8_t* zero_points, uint64_t b, std::byte* out) {
  std::array<int32_t, kW4A8Width> sums;
  std::memcpy(sums.data(), out, sizeof sums);
  // Products of at most 128 · 255 fit into 16 bits, of which every CPU multiplies many at a time.
  const auto factor = static_cast<uint16_t>(b);
  for (uint64_t row = 0; row < kW4A8Width; ++row) {
    sums[row] -= static_cast<uint16_t>(zero_points[row] * factor);
  }
  std::memcpy(out, sums.data(), sizeof sums);
}

// Blocks at a time, so that their sums are still in the L1 cache when zero points are taken off.
constexpr uint64_t kBlocksAtATime = 8;

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  const uint64_t b = BlockInputs(job.request);
  const size_t row_bytes = PanelRowBytes(CodeType::kU4, job.panel.cols);
  const KernelTable& kernels = Kernels();
  for (uint64_t row = 0; row < job.panel.rows; row += kW4A8Width) {
    const uint64_t n = job.panel.n0 + row;
    ZeroPointRows zero_points(job, n);
    std::byte* to = packed.subspan(BlockBegin(job.request, n - job.tile.n0, job.panel.k0)).data();
    for (uint64_t col = 0; col < job.panel.cols;) {
      const uint64_t blocks = std::min(kBlocksAtATime, (job.panel.cols - col) / b);
      kernels.rows_to_pairs(U8(codes.subspan(row * row_bytes + col / 2).data()), row_bytes, b,
                            blocks, U8(to));
      for (uint64_t block = 0; block < blocks; ++block) {
        const uint64_t group = (job.panel.k0 + col) / job.request.scheme.group_size;
        SubtractZeroPoints(zero_points.Of(group), b, to + PairCodeBytes(b));
        to += PairBlockBytes(b);
        col += b;
      }
    }
  }
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  const uint64_t b = BlockInputs(job.request);
  const size_t row_bytes = PanelRowBytes(CodeType::kU4, job.panel.cols);
  for (uint64_t row = 0; row < job.panel.rows; row += kW4A8Width) {
    const uint64_t n = job.panel.n0 + row;
    Kernels().pairs_to_rows(
        U8(packed.subspan(BlockBegin(job.request, n - job.tile.n0, job.panel.k0)).data()), b,
        job.panel.cols / b, row_bytes, U8(codes.subspan(row * row_bytes).data()));
  }
}

}  // namespace

constinit const Layout kVllmInt4W4A8 = {
    .id = "vllm-cpu/int4-w4a8",
    .version = 1,
    .target = "vllm-cpu",
    .consumer = "torch.ops._C.int4_scaled_mm_cpu",
    .mirrors = "vLLM 0.32.0, csrc/cpu/sgl-kernels/gemm_int4.cpp",
    .schemes =
        "w4a8 with dynamic symmetric activations, symmetric or asymmetric weights, group or "
        "channel",
    .constraints =
        "N % 32 = 0, K % 32 = 0, groups of a multiple of 4 that divide K, above 128 of "
        "a multiple of 128, bf16 or f16 activations",
    .isa = "AVX-512 with VNNI and BF16; vLLM itself picks the op only with AMX",
    .needs = {CpuFeature::kAvx512, CpuFeature::kVnni, CpuFeature::kBf16},
    .address =
        "b = min(group, 128): byte ((n / 32) · (K / b) + k / b) · (16b + 128) + "
        "(k % b / 4) · 64 + (n % 32 / 16) · 32 + (n % 8) · 4 + k % 4, low half when n / 8 is "
        "even",
    .notes = "after the codes of a block: i32 Σ (code − zero point) for each channel",
    .fingerprint = "6d1a2c81871574e44d2a337775a42d65",
    .stacks_experts = true,
    .eligible = Eligible,
    .weight = {.dtype = DType::kU8,
               .shape = {{"N/32", [](const PackRequest& r) { return r.n / kW4A8Width; }},
                         {"K/b", [](const PackRequest& r) { return r.k / BlockInputs(r); }},
                         {"16b + 128",
                          [](const PackRequest& r) { return W4A8BlockBytes(BlockInputs(r)); }}},
               .by_outputs = DivisionRow::Along(0, kW4A8Width),
               .by_inputs = DivisionRow::Along(
                   1, {"lcm(b, 32)",
                       [](const PackRequest& r) { return std::lcm(BlockInputs(r), kW4A8Width); }})},
    .scales = {.order = ParameterOrder::kBlocks,
               .value = {"dtype of the activations; F32 with --scales exact",
                         [](const PackRequest& r) {
                           return r.exact_scales ? DType::kF32 : r.activation_dtype;
                         }}},
    .zero_points = {.order = ParameterOrder::kBlocks,
                    .dtype = DType::kI8,
                    .bits = 8,
                    .when = symbol::kAlways},
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceWeight,
    .codes_need_zero_points = true,
    .weight_has_extras = true,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
};

}  // namespace prepack
