// onednn/w4a16 and onednn/w4a8: 4-bit weights for oneDNN's matmul primitive with weights requested
// as format `any`. The primitive asks for a plain row-major matrix [K, N] on every CPU, so these
// bytes depend on neither instruction set nor version.
// Mirrors oneDNN 3.13: src/cpu/x64/matmul/brgemm_matmul_utils.cpp.
//
// weight, U8 [K, N/2]: row-major nibbles, even output channel in the low half:
//
//     byte   0          1          …  N/2
//            n0k0 n1k0  n2k0 n3k0  …  n0k1 n1k1  …
//
// Symmetric: data type s4, two's complement (code XOR 8). Asymmetric: u4, the code itself.
// weight_scale, f32 [G, N]; scales with mask 3 and groups {group size, 1}. weight_zero_point,
// U8 [G, N/2], nibbles of type u4, only when asymmetric: with u8 or s8 zero points, or bf16 scales,
// W4A8 falls back to a reference implementation, thousands of times slower. bias in the dtype of
// the activations.

#include "prepack/base/checked.h"
#include "prepack/kernels/memory.h"
#include "prepack/kernels/nibble_matrix.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kRows = 16;  // what the kernel that transposes takes at a time
constexpr uint8_t kSignBits = 0x88;

Eligibility GroupsFit(const PackRequest& request) {
  const uint64_t group_size = request.scheme.group_size;
  if (group_size == request.k || group_size % 16 == 0) return Eligibility::Yes();
  return Eligibility::No(
      "the group size is not a multiple of 16: oneDNN's matmul takes such groups, or one for all "
      "of K");
}

Eligibility EligibleWeights(const PackRequest& request) {
  return AllOf({
      FourBitCodes(request),
      ScalesPerChannelOrGroup(request),
      MultipleOf("N", request.n, 2, "two output channels share a byte"),
      GroupsDivideK(request),
      GroupsFit(request),
      BiasIsFloat(request),
  });
}

Eligibility EligibleW4A16(const PackRequest& request) {
  return AllOf({EligibleWeights(request), WideActivations(request),
                ActivationsOneOf(request, {DType::kBF16, DType::kF32})});
}

Eligibility EligibleW4A8(const PackRequest& request) {
  return AllOf({EligibleWeights(request), DynamicInt8Activations(request)});
}

TileCut Cut(const PackRequest& /*request*/) {
  return {.by_inputs = true, .rows = kRows, .cols = 1, .strip_rows = 2};
}

uint64_t WeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return 4 * (k * request.n + n);
}

Placement PlaceWeight(const PackRequest& request, const PanelRange& tile) {
  const uint64_t stride = request.n / 2;
  return {{.offset = tile.k0 * stride + tile.n0 / 2,
           .bytes = tile.rows / 2,
           .count = tile.cols,
           .stride = stride}};
}

// The panel's first byte in the tile [tile.cols, tile.rows / 2].
size_t PanelBegin(const PackJob& job) {
  return (job.panel.k0 - job.tile.k0) * job.tile.rows / 2 + (job.panel.n0 - job.tile.n0) / 2;
}

uint8_t SignMask(const PackRequest& request) {
  return request.scheme.symmetric ? kSignBits : uint8_t{0};
}

void PackCodes(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  NibbleRowsToColumns(U8(codes.data()), PanelRowBytes(CodeType::kU4, job.panel.cols),
                      job.panel.rows, job.panel.cols, SignMask(job.request),
                      U8(packed.subspan(PanelBegin(job)).data()), job.tile.rows / 2);
}

// Columns are as they are wanted, but for the sign.
void PackColumns(const PackJob& job, std::span<const std::byte> columns,
                 std::span<std::byte> packed) {
  const std::byte mask{SignMask(job.request)};
  const size_t panel_bytes = job.panel.rows / 2;
  const size_t tile_bytes = job.tile.rows / 2;
  for (uint64_t col = 0; col < job.panel.cols; ++col) {
    XorCopy(columns.subspan(col * panel_bytes, panel_bytes), mask,
            packed.subspan(PanelBegin(job) + col * tile_bytes, panel_bytes));
  }
}

void UnpackCodes(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  NibbleColumnsToRows(U8(packed.subspan(PanelBegin(job)).data()), job.tile.rows / 2, job.panel.rows,
                      job.panel.cols, SignMask(job.request), U8(codes.data()),
                      PanelRowBytes(CodeType::kU4, job.panel.cols));
}

// What both have in common.
constexpr Layout MakeLayout() {
  return {
      .version = 1,
      .target = "onednn",
      .consumer = "dnnl::matmul",
      .mirrors = "oneDNN 3.13, src/cpu/x64/matmul/brgemm_matmul_utils.cpp",
      .address = "nibble k · N + n",
      .by_primitive = true,
      .weight = {.dtype = DType::kU8,
                 .shape = {symbol::kK, {"N/2", [](const PackRequest& r) { return r.n / 2; }}},
                 .by_outputs = DivisionRow::Along(1, 2),
                 .by_inputs = DivisionRow::Along(0, 1)},
      .scales = {.order = ParameterOrder::kGroups},
      .zero_points = {.order = ParameterOrder::kGroups, .dtype = DType::kU8, .bits = 4},
      .bias = symbol::kAsActivations,
      .cut = Cut,
      .weight_bit = WeightBit,
      .place_weight = PlaceWeight,
      .pack_codes = PackCodes,
      .unpack_codes = UnpackCodes,
      .pack_columns = PackColumns,
  };
}

constexpr Layout MakeW4A16() {
  Layout layout = MakeLayout();
  layout.id = "onednn/w4a16";
  layout.schemes = "w4a16, symmetric or asymmetric, group or channel";
  layout.constraints =
      "N % 2 = 0, groups of a multiple of 16 that divide K, bf16 or f32 activations";
  layout.isa = "any; AVX-512 with BF16 for the fast kernel";
  layout.wants = {CpuFeature::kAvx512, CpuFeature::kBf16};
  layout.notes =
      "symmetric codes are s4 (code XOR 8), asymmetric ones u4; with f32 activations "
      "oneDNN runs a reference implementation";
  layout.fingerprint = "4264d3ea85f153ccba71adaf8d777a36";
  layout.eligible = EligibleW4A16;
  layout.input = DType::kBF16;  // a kernel for f32 exists as a reference implementation only
  return layout;
}

constexpr Layout MakeW4A8() {
  Layout layout = MakeLayout();
  layout.id = "onednn/w4a8";
  layout.schemes =
      "w4a8 with dynamic symmetric activations, symmetric or asymmetric weights, group "
      "or channel";
  layout.constraints = "N % 2 = 0, groups of a multiple of 16 that divide K";
  layout.isa = "any; AVX-512 with VNNI for the fast kernel";
  layout.wants = {CpuFeature::kAvx512, CpuFeature::kVnni};
  layout.reference_without_wants = true;
  layout.notes =
      "scales are f32 and zero points u4: with others oneDNN runs a reference "
      "implementation";
  layout.fingerprint = "1019afaee1946959cde2989a70ee0d9e";
  layout.eligible = EligibleW4A8;
  return layout;
}

}  // namespace

constinit const Layout kOneDnnW4A16 = MakeW4A16();
constinit const Layout kOneDnnW4A8 = MakeW4A8();

}  // namespace prepack
