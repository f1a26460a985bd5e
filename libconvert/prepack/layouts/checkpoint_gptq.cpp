// How GPTQModel, AutoGPTQ and AutoRound store integer weights. Mirrors GPTQModel 7.7,
// nn_modules/qlinear/__init__.py (PackableQuantLinear), and auto-round 0.15,
// export/export_to_autoround/export.py. For N = 3, K = 16, 4 bits, one group:
//
//     qweight  I32 [K·b/32, N]  word [k/8, n] holds codes k … k+7 of channel n, the first in its
//                               lowest bits:   n = 0      n = 1      n = 2
//                                       row 0  k7 … k0    k7 … k0    k7 … k0
//                                       row 1  k15 … k8   k15 … k8   k15 … k8
//     qzeros   I32 [G, N·b/32]  the zero points of channels n … in word [g, n·b/32]: z − 1 in
//                               version 1 of the format, z in version 2
//     scales   F16 or BF16 [G, N]
//     g_idx    I32 [K]          the group of each input channel; AutoRound has none
//
// 3 bits are a string: code k of a channel is in bits [3k, 3k + 3) of its words.

#include <algorithm>
#include <array>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/layouts/checkpoint_parts.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/stored_codes.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr std::string_view kGptqName = "GPTQ";
constexpr std::string_view kAutoRoundName = "AutoRound";
constexpr uint64_t kWordSize = 4;

WordForm StringOf(const PackRequest& request) {
  return {.bits = request.scheme.bits};
}

uint64_t ColumnWords(const PackRequest& request) {
  return StringOf(request).Words(request.k);
}

Eligibility EligibleGptqTensors(const PackRequest& request, std::string_view format) {
  // Shortest runs of zero points that fill words.
  const uint64_t unit = request.scheme.bits == 3 ? 32 : 32 / std::max(request.scheme.bits, 1U);
  return AllOf({
      IntegerCodes(request, {2, 3, 4, 8}, "integer codes of 2, 3, 4 or 8 bits"),
      NoActivations(request, format),
      NoBlocks(request, format),
      WholeGroups(request, format),
      ScalesOfHalf(request, format),
      MultipleOf("K", request.k, 32, "its packers take 32 input channels at a time"),
      MultipleOf("N", request.n, unit, "the zero points of that many channels share words"),
      BiasIsFloat(request),
  });
}

template <uint8_t kLess>
Eligibility EligibleGptq(const PackRequest& request) {
  return AllOf({EligibleGptqTensors(request, kGptqName),
                kLess == 0 ? ZerosAreCodes(request, "version 2 of GPTQ")
                           : ZerosAboveZero(request, "version 1 of GPTQ"),
                OrderOfGroups(request)});
}

Eligibility EligibleAutoRound(const PackRequest& request) {
  return AllOf({EligibleGptqTensors(request, kAutoRoundName),
                ZerosAboveZero(request, kAutoRoundName), NoOrder(request, kAutoRoundName),
                OutputsFirst(request, kAutoRoundName)});
}

TileCut CutStrings(const PackRequest& /*request*/) {
  return {.by_inputs = true, .rows = 1, .cols = 32, .strip_rows = 32};
}

uint64_t WeightBitString(const PackRequest& request, uint64_t n, uint64_t k) {
  const uint64_t bit = k * request.scheme.bits;
  return (bit / 32 * request.n + n) * 32 + bit % 32;
}

// A tile of all output channels is one run; one of some of them is a run for each row of words.
Placement PlaceStrings(const PackRequest& request, const PanelRange& tile) {
  const WordForm form = StringOf(request);
  const uint64_t first = form.BitOf(tile.k0) / 32;
  const uint64_t words = form.Words(tile.cols);
  const uint64_t row_bytes = request.n * kWordSize;
  if (tile.rows == request.n) return {{.offset = first * row_bytes, .bytes = words * row_bytes}};
  return {{.offset = first * row_bytes + tile.n0 * kWordSize,
           .bytes = tile.rows * kWordSize,
           .count = words,
           .stride = words == 1 ? 0 : row_bytes}};
}

// Where the panel's first word lies in the packed tile, [words, tile.rows].
size_t FirstByte(const PackJob& job) {
  const uint64_t row = StringOf(job.request).BitOf(job.panel.k0 - job.tile.k0) / 32;
  return (row * job.tile.rows + job.panel.n0 - job.tile.n0) * kWordSize;
}

// Are the codes of a panel's row the words of its string?
bool PanelHasWords(const Scheme& scheme) {
  return scheme.bits == 4 || (scheme.bits == 8 && scheme.code == CodeType::kU8);
}

void PackStrings(const PackJob& job, std::span<const std::byte> codes,
                 std::span<std::byte> packed) {
  const Scheme& scheme = job.request.scheme;
  const WordForm form = StringOf(job.request);
  const size_t row_bytes = PanelRowBytes(scheme.code, job.panel.cols);
  const uint64_t words = form.Words(job.panel.cols);
  std::byte* to = &packed[FirstByte(job)];
  const size_t to_stride = job.tile.rows * kWordSize;
  if (PanelHasWords(scheme)) {
    return TransposeUnits(kWordSize)(codes.data(), row_bytes, job.panel.rows, words, to, to_stride);
  }
  Scratch<std::byte> strings(job.panel.rows * words * kWordSize);
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    StoreCodes(form, scheme.code, &codes[row * row_bytes], job.panel.cols,
               &strings[row * words * kWordSize]);
  }
  TransposeUnits(kWordSize)(strings.data(), words * kWordSize, job.panel.rows, words, to,
                            to_stride);
}

void UnpackStrings(const PackJob& job, std::span<const std::byte> packed,
                   std::span<std::byte> codes) {
  const Scheme& scheme = job.request.scheme;
  const WordForm form = StringOf(job.request);
  const size_t row_bytes = PanelRowBytes(scheme.code, job.panel.cols);
  const uint64_t words = form.Words(job.panel.cols);
  const std::byte* from = &packed[FirstByte(job)];
  const size_t from_stride = job.tile.rows * kWordSize;
  if (PanelHasWords(scheme)) {
    return TransposeUnits(kWordSize)(from, from_stride, words, job.panel.rows, codes.data(),
                                     row_bytes);
  }
  Scratch<std::byte> strings(job.panel.rows * words * kWordSize);
  TransposeUnits(kWordSize)(from, from_stride, words, job.panel.rows, strings.data(),
                            words * kWordSize);
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    LoadCodes(form, scheme.code, &strings[row * words * kWordSize], job.panel.cols,
              &codes[row * row_bytes]);
  }
}

// Zero points [G, N·b/32], as z less kLess.

Placement PlaceZeroStrings(const PackRequest& request, uint64_t n0, uint64_t rows) {
  const WordForm form = StringOf(request);
  return {{.offset = form.Words(n0) * kWordSize,
           .bytes = form.Words(rows) * kWordSize,
           .count = request.groups(),
           .stride = request.groups() == 1 ? 0 : form.Words(request.n) * kWordSize}};
}

template <uint8_t kLess>
void PackZeroStrings(const PackRequest& request, uint64_t rows,
                     std::span<const uint8_t> zero_points, std::span<std::byte> packed) {
  const WordForm form = StringOf(request);
  const auto offset = static_cast<uint8_t>(UnsignedOffset(request.scheme.code) - kLess);
  Scratch<uint8_t> columns(rows * request.groups());
  ZeroColumns(request, rows, zero_points, offset, {columns.data(), columns.size()});
  for (uint64_t g = 0; g < request.groups(); ++g) {
    StoreZeros(form, &columns[g * rows], rows, &packed[g * form.Words(rows) * kWordSize]);
  }
}

template <uint8_t kLess>
void UnpackZeroStrings(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                       std::span<uint8_t> zero_points) {
  const WordForm form = StringOf(request);
  const auto offset = static_cast<uint8_t>(UnsignedOffset(request.scheme.code) - kLess);
  Scratch<uint8_t> columns(rows * request.groups());
  for (uint64_t g = 0; g < request.groups(); ++g) {
    LoadZeros(form, &packed[g * form.Words(rows) * kWordSize], rows, &columns[g * rows]);
  }
  ZeroRows(request, rows, {columns.data(), columns.size()}, offset, zero_points);
}

constexpr std::array kZeroStrings = {
    PartRow{.role = PartRole::kZeroPoint,
            .name = "qzeros",
            .dtype = DType::kI32,
            .shape = {symbol::kG,
                      {"N·b/32", [](const PackRequest& r) { return StringOf(r).Words(r.n); }}}}};

template <uint8_t kLess>
constexpr ZeroPointForm kZeroStringForm{.parts = kZeroStrings,
                                        .least = kLess,
                                        .place = PlaceZeroStrings,
                                        .pack = PackZeroStrings<kLess>,
                                        .unpack = UnpackZeroStrings<kLess>};

constexpr std::array kGptqSides = {PartRow{
    .role = PartRole::kGroupIndex, .name = "g_idx", .dtype = DType::kI32, .shape = {symbol::kK}}};

constexpr PartRow kStrings{
    .name = "qweight",
    .dtype = DType::kI32,
    .shape = {{"K·b/32", [](const PackRequest& r) { return ColumnWords(r); }}, symbol::kN}};

// Fills in what all rows of this file have in common.
constexpr Layout StringRows(Layout row) {
  row.version = 1;
  row.isa = "any";
  row.checkpoint = true;
  row.schemes = "integer weights of 2, 3, 4 or 8 bits, activations not quantized";
  row.address = "bit (k·b / 32 · N + n) · 32 + k·b % 32";
  row.weight = kStrings;
  row.scales = kScalesByGroup;
  row.cut = CutStrings;
  row.weight_bit = WeightBitString;
  row.place_weight = PlaceStrings;
  row.pack_codes = PackStrings;
  row.unpack_codes = UnpackStrings;
  return row;
}

}  // namespace

constinit const Layout kGptqV1 = StringRows({
    .id = "gptq/v1",
    .target = "gptq",
    .consumer = "readers of quant_method gptq",
    .mirrors = "GPTQModel 7.7, nn_modules/qlinear/__init__.py",
    .constraints = "K % 32 = 0, groups that divide K, zero points of at least 1",
    .notes = "zero points are stored as z − 1; 3-bit codes may go on in the next row",
    .fingerprint = "1cd0c27103d68f1afc5a7f5703c4e9b6",
    .side_parts = kGptqSides,
    .eligible = EligibleGptq<1>,
    .zero_points = {.form = &kZeroStringForm<1>},
});

constinit const Layout kGptqV2 = StringRows({
    .id = "gptq-v2/v2",
    .target = "gptq-v2",
    .consumer = "readers of checkpoint_format gptq_v2",
    .mirrors = "GPTQModel 7.7, nn_modules/qlinear/__init__.py",
    .constraints = "K % 32 = 0, groups that divide K",
    .notes = "zero points are stored as they are; 3-bit codes may go on in the next row",
    .fingerprint = "21719406cf656914b11b5f648a31d75c",
    .side_parts = kGptqSides,
    .eligible = EligibleGptq<0>,
    .zero_points = {.form = &kZeroStringForm<0>},
});

constinit const Layout kAutoRoundGptq = StringRows({
    .id = "auto-round/auto_gptq",
    .target = "auto-round",
    .consumer = "readers of packing_format auto_round:auto_gptq",
    .mirrors = "auto-round 0.15, export/export_to_autoround/export.py",
    .constraints = "K % 32 = 0, groups that divide K, zero points of at least 1",
    .notes = "zero points are stored as z − 1; 3-bit codes may go on in the next row",
    .fingerprint = "0477dced08f228c922e877268359a440",
    .eligible = EligibleAutoRound,
    .zero_points = {.form = &kZeroStringForm<1>},
});

}  // namespace prepack
