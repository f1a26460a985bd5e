// zentorch/int8-dlp: what AOCL-DLP's int8 kernel reads inside zentorch_dynamic_qlinear with
// is_weight_prepacked=True. Known and tested, but never chosen: vLLM does not use it, and it is
// private to AOCL-DLP. zentorch's own packer writes it only where N ≤ 1024 or K ≤ 2048; beyond, it
// writes something else that the kernel does not expect (−14 dB).
// Mirrors zentorch 2.13.0.1, src/cpu/cpp/WeightReorder.cpp, with ZenDNN 6.0.1.
//
// weight, U8 [bytes]: N in panels of 64 output channels while so many are left, then one of the
// remaining whole sixteens, then one of 16 for the rest; K padded to a multiple of four. In a panel
// of width w that begins at channel c:
//
//     byte c · K4 + (k / 4) · 4w + (n − c) · 4 + k % 4
//
// then an i32 for each channel, padded to 16: 128 · Σ_k w(n, k). weight_scale, bf16 [N].

#include <algorithm>

#include "prepack/base/memory.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
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

Eligibility Eligible(const PackRequest& request) {
  return AllOf({
      SignedByteCodes(request),
      SymmetricWeights(request),
      DynamicInt8Activations(request),
      ScalesPerChannelOrTensor(request),
      ActivationsOneOf(request, {DType::kBF16, DType::kF32}),
      BiasIsFloat(request),
  });
}

std::vector<PartSpec> Parts(const PackRequest& request) {
  const uint64_t bytes = PaddedN(request.n) * (PaddedK(request) + sizeof(int32_t));
  std::vector<PartSpec> parts = {
      {.role = PartRole::kWeight,
       .name = "weight",
       .dtype = DType::kU8,
       .shape = {bytes},
       .by_outputs = Division::Never(),  // the sums stand together at the end
       .by_inputs = Division::Never()},
      ChannelScalePart(request, ZentorchScaleForm(request).part)};
  AppendCommonParts(request, DType::kBF16, parts);
  return parts;
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.rows = kWidest, .cols = kUnit, .strip_rows = 1};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  const auto [first, width] = WidthOf(n, request.n);
  const uint64_t byte =
      first * PaddedK(request) + (k / kUnit * width + n - first) * kUnit + k % kUnit;
  return 8 * byte;
}

Placement PlaceWeight(const PackRequest& request, const PanelRange& tile) {
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

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
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

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
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
    .address =
        "in the panel of w channels that begins at c: byte c · K4 + (k / 4) · 4w + "
        "(n − c) · 4 + k % 4, K4 = K rounded up to 4",
    .notes =
        "behind the codes i32 128 · Σ w per channel; never chosen: private to AOCL-DLP, and vLLM "
        "does not use it",
    .fingerprint = "7482ea19fad90652225ad74bb4e23a57",
    .offered = false,
    .eligible = Eligible,
    .parts = Parts,
    .cut = Cut,
    .weight_bit = WeightBit,
    .place_weight = PlaceWeight,
    .place_rows = PlaceZentorchScales,
    .weight_has_extras = true,
    .pack_codes = PackCodes,
    .unpack_codes = UnpackCodes,
    .scale_form = ZentorchScaleForm,
    .pack_scales = PackZentorchScales,
    .unpack_scales = UnpackZentorchScales,
};

}  // namespace prepack
