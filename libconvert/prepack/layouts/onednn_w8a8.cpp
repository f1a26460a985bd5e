// onednn/w8a8: int8 weights for oneDNN's matmul primitive with weights requested as format `any`:
// the primitive says in which blocked form it wants them (blocked_desc.h), and that is what is
// written. vLLM's create_onednn_scaled_mm_handler asks with the same attributes. Mirrors
// oneDNN 3.13: src/cpu/x64/matmul/brgemm_matmul_utils.cpp; vLLM 0.32.0: csrc/cpu/dnnl_helper.cpp.
//
// On CPUs with AVX-512 VNNI and without AMX the answer is BA16a64b4a for every shape: N and K
// padded to 64; per 64 output by 64 input channels, for every four input channels those of the 64
// output channels side by side:
//
//     byte   0           4           …  256                …  4096            …  64·K64
//            n0 k0…k3    n1 k0…k3    …  n0 k4…k7  …        …  n0 k64…k67  …   …  n64 k0…k3  …
//
// then i32 −128 · Σ_k w(k, n) per output channel, because activations are signed and the
// instruction wants them unsigned; then, for static activations with a zero point, i32 −Σ_k w(k,
// n). This is the default; other CPUs want other forms. Which one was written stands in the
// manifest.
//
// weight, U8 [bytes]. weight_scale, f32 [N]. weight_sum, f32 [N] = Σ_k w · scale, for activations
// with zero points. input_scale, f32 [1], and input_zero_point, i32 [1], of static activations.
// bias in the dtype of the activations.

#include <algorithm>

#include "prepack/base/memory.h"
#include "prepack/kernels/kernels.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr int32_t kActivationShift = -128;
constexpr int32_t kZeroPointFactor = -1;

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      SymmetricWeights(request),
      Int8Activations(request),
      ScalesPerChannelOrTensor(request),
      BiasIsFloat(request),
  });
}

constexpr Condition kAsymmetricActivations{
    "asymmetric activations", [](const PackRequest& r) { return !r.scheme.activations.symmetric; }};

BlockedDesc DescOf(const PackRequest& request) {
  return request.weights_desc.value_or(DefaultW8A8Desc(request));
}

bool HasSums(const BlockedDesc& desc) {
  return desc.s8s8_compensation || desc.zero_point_compensation;
}

uint64_t PaddedTo(uint64_t value, uint64_t block) {
  return CeilDiv(value, block) * block;
}

// The tile as a matrix of its own: the same blocks in the same order, side by side.
BlockedDesc DescOfTile(const BlockedDesc& desc, const PanelRange& tile) {
  BlockedDesc part = desc;
  part.dims = {tile.cols, tile.rows};
  part.padded_dims = {PaddedTo(tile.cols, desc.Block(0)), PaddedTo(tile.rows, desc.Block(1))};
  const uint64_t block = desc.BlockElements();
  if (desc.NIsOutside()) {
    part.strides = {block, part.padded_dims[0] / desc.Block(0) * block};
  } else {
    part.strides = {part.padded_dims[1] / desc.Block(1) * block, block};
  }
  return part;
}

uint64_t WeightBytes(const PackRequest& request) {
  const BlockedDesc desc = DescOf(request);
  const uint64_t sums = (desc.s8s8_compensation ? 1 : 0) + (desc.zero_point_compensation ? 1 : 0);
  return desc.Elements() + sums * desc.padded_dims[1] * sizeof(int32_t);
}

// Sums stand together at the end, and are over all of K: only a form without them can be cut.
void DivideWeight(const PackRequest& request, PartSpec& weight) {
  const BlockedDesc desc = DescOf(request);
  if (HasSums(desc)) return;
  const size_t outer = desc.NIsOutside() ? 1 : 0;
  weight.view = {desc.padded_dims[outer] / desc.Block(static_cast<uint32_t>(outer)),
                 desc.padded_dims[1 - outer] / desc.Block(static_cast<uint32_t>(1 - outer)),
                 desc.BlockElements()};
  weight.by_outputs = Division::Along(1 - outer, desc.Block(1));
  weight.by_inputs = Division::Along(outer, desc.Block(0));
}

TileCut Cut(const PackRequest& request) {
  const BlockedDesc desc = DescOf(request);
  return {.by_inputs = !desc.NIsOutside() && !HasSums(desc),
          .rows = desc.Block(1),
          .cols = desc.Block(0),
          .strip_rows = 1};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * DescOf(request).Element(k, n);
}

// Runs of blocks that lie side by side, then the sums.
Placement PlaceWeight(const PackRequest& request, const PanelRange& tile) {
  const BlockedDesc desc = DescOf(request);
  const BlockedDesc part = DescOfTile(desc, tile);
  const size_t outer = desc.NIsOutside() ? 1 : 0;
  const uint64_t first = desc.Element(tile.k0, tile.n0);
  Runs runs{.offset = first, .bytes = part.Elements()};
  // A tile that is narrower than the matrix in the inner direction is cut into rows of blocks.
  if (part.padded_dims[1 - outer] != desc.padded_dims[1 - outer]) {
    runs.count = part.padded_dims[outer] / desc.Block(static_cast<uint32_t>(outer));
    runs.bytes /= runs.count;
    runs.stride = desc.strides[outer];
  }
  Placement placement = {runs};
  uint64_t sums = desc.Elements();
  for (const bool present : {desc.s8s8_compensation, desc.zero_point_compensation}) {
    if (!present) continue;
    placement.push_back({.offset = sums + tile.n0 * sizeof(int32_t),
                         .bytes = part.padded_dims[1] * sizeof(int32_t)});
    sums += desc.padded_dims[1] * sizeof(int32_t);
  }
  return placement;
}

// For forms in which four input channels of all output channels of a block stand together, and
// blocks along K follow each other: one block of all of K.
bool IsUnitBlocks(const BlockedDesc& desc) {
  constexpr uint64_t kUnit = 4;
  return desc.NIsOutside() && desc.inner.size() == 3 && desc.inner[0].dim == 0 &&
         desc.inner[1].dim == 1 && desc.inner[2] == InnerBlock{.dim = 0, .size = kUnit};
}

UnitBlocks UnitBlocksOf(const BlockedDesc& desc) {
  const uint64_t unit = desc.inner[2].size;
  return {.width = desc.Block(1),
          .unit = unit,
          .units = desc.padded_dims[0] / unit,
          .block_bytes = desc.Block(1) * desc.padded_dims[0]};
}

// Element by element: whatever the primitive asks for.
void PackElements(const PackJob& job, const BlockedDesc& part, std::span<const std::byte> codes,
                  std::span<std::byte> packed) {
  const bool first = job.panel.n0 == job.tile.n0 && job.panel.k0 == job.tile.k0;
  if (first) std::ranges::fill(packed.first(part.Elements()), std::byte{0});
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    for (uint64_t col = 0; col < job.panel.cols; ++col) {
      packed[part.Element(job.panel.k0 - job.tile.k0 + col, job.panel.n0 - job.tile.n0 + row)] =
          codes[row * job.panel.cols + col];
    }
  }
}

void UnpackElements(const PackJob& job, const BlockedDesc& part, std::span<const std::byte> packed,
                    std::span<std::byte> codes) {
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    for (uint64_t col = 0; col < job.panel.cols; ++col) {
      codes[row * job.panel.cols + col] =
          packed[part.Element(job.panel.k0 - job.tile.k0 + col, job.panel.n0 - job.tile.n0 + row)];
    }
  }
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  const BlockedDesc part = DescOfTile(DescOf(job.request), job.tile);
  const bool summed = part.s8s8_compensation || part.zero_point_compensation;
  Scratch<int32_t> row_sums(summed ? job.panel.rows : 0, 0);
  if (IsUnitBlocks(part)) {
    PackUnits(job, UnitBlocksOf(part), codes, packed, row_sums);
  } else {
    PackElements(job, part, codes, packed);
    Kernels().sum_rows(reinterpret_cast<const int8_t*>(codes.data()), job.panel.cols,
                       row_sums.size(), job.panel.cols, row_sums.data());
  }
  std::span<std::byte> sums = packed.subspan(part.Elements());
  const size_t sum_bytes = part.padded_dims[1] * sizeof(int32_t);
  const bool first = job.panel.n0 == job.tile.n0 && job.panel.k0 == 0;
  for (const auto& [present, factor] :
       {std::pair{part.s8s8_compensation, kActivationShift},
        std::pair{part.zero_point_compensation, kZeroPointFactor}}) {
    if (!present) continue;
    if (first) std::ranges::fill(sums.first(sum_bytes), std::byte{0});
    AddCodeSums(job, factor, row_sums,
                sums.subspan((job.panel.n0 - job.tile.n0) * sizeof(int32_t)));
    sums = sums.subspan(sum_bytes);
  }
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  const BlockedDesc part = DescOfTile(DescOf(job.request), job.tile);
  if (IsUnitBlocks(part)) return UnpackUnits(job, UnitBlocksOf(part), packed, codes);
  UnpackElements(job, part, packed, codes);
}

}  // namespace

BlockedDesc DefaultW8A8Desc(const PackRequest& request) {
  BlockedDesc desc = Ba16a64b4aDesc(request.k, request.n);
  const ActivationScheme& activations = request.scheme.activations;
  desc.s8s8_compensation = true;
  desc.zero_point_compensation = !activations.dynamic && !activations.symmetric;
  return desc;
}

constinit const Layout kOneDnnW8A8 = {
    .id = "onednn/w8a8",
    .version = 1,
    .target = "onednn",
    .consumer = "dnnl::matmul",
    .mirrors = "oneDNN 3.13, src/cpu/x64/matmul/brgemm_matmul_utils.cpp",
    .schemes =
        "w8a8 with dynamic or static, symmetric or asymmetric activations, symmetric "
        "weights, channel or tensor",
    .constraints = "any N and K",
    .isa =
        "AVX-512 with VNNI, without AMX; other CPUs want other forms (--onednn-form), and without "
        "VNNI oneDNN's sums saturate",
    .needs = {CpuFeature::kAvx512, CpuFeature::kVnni},
    .excludes = {CpuFeature::kAmxInt8},
    .address =
        "BA16a64b4a: byte ((n / 64) · (K64 / 64) + k / 64) · 4096 + (k % 64 / 4) · 256 + "
        "(n % 64) · 4 + k % 4, K64 = K rounded up to 64",
    .notes =
        "after the codes: i32 −128 · Σ w per channel, then, for static activations with a "
        "zero point, −Σ w; the manifest holds the memory descriptor",
    .fingerprint = "b43d867b8d6b191c2d25040072ebcb6f",
    .static_activations = true,
    .by_primitive = true,
    .eligible = Eligible,
    .weight = {.dtype = DType::kU8,
               .shape = {{"N64 · (K64 + 4), with static asymmetric activations N64 · (K64 + 8)",
                          WeightBytes}}},
    .scales = {.order = ParameterOrder::kChannels},
    .weight_sums = {.name = "weight_sum", .when = kAsymmetricActivations},
    .bias = symbol::kAsActivations,
    .divide_weight = DivideWeight,
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceWeight,
    .weight_has_extras = true,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
};

}  // namespace prepack
