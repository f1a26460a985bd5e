// The storage formats of compressed-tensors for integers, as its release 0.18 and later write them.
// Mirrors compressed-tensors 0.19: compressors/, quantization/lifecycle/initialize.py.
//
//     pack-quantized        MODULE.weight_packed      I32 [N, ⌈K·b/32⌉], dense rows of code +
//     2^(b-1)
//                           MODULE.weight_zero_point  I32 [⌈N·b/32⌉, G], packed down the rows
//                           MODULE.weight_shape       I64 [2]: N, K
//                           MODULE.weight_g_idx       I32 [K], with activation order
//     int-quantized         MODULE.weight             I8 [N, K], signed
//                           MODULE.weight_zero_point  I8, shaped like the scales, signed
// Scales are BF16, F16 or F32: [1], [N, 1], [N, G]. Releases before 0.18 stored 3, 5, 6 and 7 bits
// word-aligned, ⌊32/b⌋ codes to a word.

#include <algorithm>
#include <array>
#include <numeric>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/kernels/code_rows.h"
#include "prepack/kernels/codes.h"
#include "prepack/kernels/memory.h"
#include "prepack/layouts/checkpoint_parts.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/stored_codes.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr Condition kCtActOrder{"activation order",
                                [](const PackRequest& r) { return r.reordered; }};

constexpr std::array kCtPackedSides = {
    PartRow{
        .role = PartRole::kWeightShape, .name = "weight_shape", .dtype = DType::kI64, .shape = {2}},
    PartRow{.role = PartRole::kGroupIndex,
            .name = "weight_g_idx",
            .dtype = DType::kI32,
            .shape = {symbol::kK},
            .when = kCtActOrder},
};

// pack-quantized.

template <bool kAligned>
constexpr WordForm FormOf(const PackRequest& request) {
  return {.bits = request.scheme.bits, .word_aligned = kAligned};
}

// From 0.19 on, the library and vLLM refuse a config that says it, and ignore the index.
Eligibility OrderBefore19(const PackRequest& request, bool before) {
  if (before || !request.reordered) return OrderOfGroups(request);
  return Eligibility::No(
      "the module has activation order: compressed-tensors reads no index of groups since 0.19 "
      "(target compressed-tensors-0.17 stores one)");
}

template <bool kAligned>
Eligibility EligiblePacked(const PackRequest& request) {
  return AllOf({
      IntegerCodes(request, {1, 2, 3, 4, 5, 6, 7, 8},
                   "integer codes without quantized activations"),
      CodesOf(request, request.scheme.activations.type == ActivationType::kNone,
              "integer codes without quantized activations"),
      NoBlocks(request, kCtName),
      WholeGroups(request, kCtName),
      ZerosAreCodes(request, kCtName),
      OutputsFirst(request, kCtName),
      OrderBefore19(request, kAligned),
      BiasIsFloat(request),
  });
}

template <bool kAligned>
TileCut CutPacked(const PackRequest& request) {
  const uint64_t codes = FormOf<kAligned>(request).CodesPerWords();
  return {.rows = 1, .cols = std::lcm(uint64_t{2}, codes), .strip_rows = StripUnit(request, codes)};
}

template <bool kAligned>
uint64_t RowBytes(const PackRequest& request) {
  return 4 * FormOf<kAligned>(request).Words(request.k);
}

template <bool kAligned>
uint64_t WeightBitPacked(const PackRequest& request, uint64_t n, uint64_t k) {
  return n * RowBytes<kAligned>(request) * 8 + FormOf<kAligned>(request).BitOf(k);
}

template <bool kAligned>
Placement PlacePacked(const PackRequest& request, const PanelRange& tile) {
  const uint64_t row_bytes = RowBytes<kAligned>(request);
  return {{.offset = tile.n0 * row_bytes, .bytes = tile.rows * row_bytes}};
}

// Calls move(first byte of the row's piece in the panel, and in the tile) for each row of a panel.
template <bool kAligned, typename Move>
void ForRows(const PackJob& job, Move move) {
  const WordForm form = FormOf<kAligned>(job.request);
  const uint64_t row_bytes = RowBytes<kAligned>(job.request);
  const size_t codes_bytes = PanelRowBytes(job.request.scheme.code, job.panel.cols);
  const uint64_t first = form.BitOf(job.panel.k0) / 8;
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    move(form, row * codes_bytes, (job.panel.n0 - job.tile.n0 + row) * row_bytes + first);
  }
}

// Are packed rows those of a panel, but for the sign bit?
bool RowsAreCodes(const PackRequest& request) {
  const uint32_t bits = request.scheme.bits;
  return (bits == 4 || bits == 8) && PanelRowBytes(request.scheme.code, request.k) % 4 == 0;
}

template <bool kAligned>
void PackPacked(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  if (RowsAreCodes(job.request))
    return PackRowMajor(job, SignMask(job.request.scheme.code), codes, packed);
  ForRows<kAligned>(job, [&](const WordForm& form, size_t from, size_t to) {
    StoreCodes(form, job.request.scheme.code, &codes[from], job.panel.cols, &packed[to]);
  });
}

template <bool kAligned>
void UnpackPacked(const PackJob& job, std::span<const std::byte> packed,
                  std::span<std::byte> codes) {
  if (RowsAreCodes(job.request))
    return UnpackRowMajor(job, SignMask(job.request.scheme.code), packed, codes);
  ForRows<kAligned>(job, [&](const WordForm& form, size_t to, size_t from) {
    LoadCodes(form, job.request.scheme.code, &packed[from], job.panel.cols, &codes[to]);
  });
}

// Zero points down the rows: word [w, g] holds those of as many output channels of group g.

template <bool kAligned>
Placement PlaceZerosDown(const PackRequest& request, uint64_t n0, uint64_t rows) {
  const WordForm form = FormOf<kAligned>(request);
  const uint64_t bytes = 4 * request.groups();
  return {{.offset = form.Words(n0) * bytes, .bytes = form.Words(rows) * bytes}};
}

template <bool kAligned>
void PackZerosDown(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
                   std::span<std::byte> packed) {
  const WordForm form = FormOf<kAligned>(request);
  const uint64_t groups = request.groups();
  const uint64_t words = form.Words(rows);
  Scratch<uint8_t> columns(rows * groups);
  ZeroColumns(request, rows, zero_points, UnsignedOffset(request.scheme.code),
              {columns.data(), columns.size()});
  Scratch<std::byte> column_words(4 * words);
  for (uint64_t g = 0; g < groups; ++g) {
    StoreZeros(form, &columns[g * rows], rows, column_words.data());
    for (uint64_t w = 0; w < words; ++w) {
      std::copy_n(&column_words[4 * w], 4, &packed[4 * (w * groups + g)]);
    }
  }
}

template <bool kAligned>
void UnpackZerosDown(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                     std::span<uint8_t> zero_points) {
  const WordForm form = FormOf<kAligned>(request);
  const uint64_t groups = request.groups();
  const uint64_t words = form.Words(rows);
  Scratch<uint8_t> columns(rows * groups);
  Scratch<std::byte> column_words(4 * words);
  for (uint64_t g = 0; g < groups; ++g) {
    for (uint64_t w = 0; w < words; ++w) {
      std::copy_n(&packed[4 * (w * groups + g)], 4, &column_words[4 * w]);
    }
    LoadZeros(form, column_words.data(), rows, &columns[g * rows]);
  }
  ZeroRows(request, rows, {columns.data(), columns.size()}, UnsignedOffset(request.scheme.code),
           zero_points);
}

template <bool kAligned>
constexpr PartRow kZerosDown{
    .role = PartRole::kZeroPoint,
    .name = "weight_zero_point",
    .dtype = DType::kI32,
    .shape = {{kAligned ? "⌈N/⌊32/b⌋⌉" : "⌈N·b/32⌉",
               [](const PackRequest& r) { return FormOf<kAligned>(r).Words(r.n); }},
              symbol::kG},
    .when = symbol::kAsymmetricWeights};

template <bool kAligned>
constexpr std::array kZerosDownParts = {kZerosDown<kAligned>};

template <bool kAligned>
constexpr ZeroPointForm kZerosDownForm{.parts = kZerosDownParts<kAligned>,
                                       .place = PlaceZerosDown<kAligned>,
                                       .pack = PackZerosDown<kAligned>,
                                       .unpack = UnpackZerosDown<kAligned>};

// int-quantized.

Eligibility EligibleInt(const PackRequest& request) {
  return AllOf({
      IntegerCodes(request, {1, 2, 3, 4, 5, 6, 7, 8}, "integer codes with quantized activations"),
      CodesOf(request, request.scheme.activations.type != ActivationType::kNone,
              "integer codes with quantized activations"),
      NoBlocks(request, kCtName),
      WholeGroups(request, kCtName),
      ZerosAreCodes(request, kCtName),
      NoOrder(request, "int-quantized"),
      OutputsFirst(request, kCtName),
      BiasIsFloat(request),
  });
}

// What is added to a code to make it signed, modulo 256.
uint8_t SignedOffset(const Scheme& scheme) {
  if (scheme.code == CodeType::kS8) return 0;
  return static_cast<uint8_t>(256U - (1U << (scheme.bits - 1)));
}

TileCut CutInt(const PackRequest& request) {
  return {.rows = 1, .cols = 2, .strip_rows = StripUnit(request, 1)};
}

uint64_t WeightBitBytes(const PackRequest& request, uint64_t n, uint64_t k) {
  return (n * request.k + k) * 8;
}

Placement PlaceBytes(const PackRequest& request, const PanelRange& tile) {
  return {{.offset = tile.n0 * request.k, .bytes = tile.rows * request.k}};
}

void PackInt(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  const Scheme& scheme = job.request.scheme;
  const uint8_t offset = SignedOffset(scheme);
  const size_t codes_bytes = PanelRowBytes(scheme.code, job.panel.cols);
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    const std::span<const std::byte> from = codes.subspan(row * codes_bytes, codes_bytes);
    std::byte* to = &packed[(job.panel.n0 - job.tile.n0 + row) * job.request.k + job.panel.k0];
    if (IsNibble(scheme.code)) {
      NibblesToBytes(U8(from.data()), job.panel.cols, offset, U8(to));
    } else {
      OffsetBytes(U8(from.data()), job.panel.cols, offset, 0xFF, U8(to));
    }
  }
}

void UnpackInt(const PackJob& job, std::span<const std::byte> packed, std::span<std::byte> codes) {
  const Scheme& scheme = job.request.scheme;
  const auto offset = static_cast<uint8_t>(256U - SignedOffset(scheme));
  const size_t codes_bytes = PanelRowBytes(scheme.code, job.panel.cols);
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    const std::byte* from =
        &packed[(job.panel.n0 - job.tile.n0 + row) * job.request.k + job.panel.k0];
    uint8_t* to = U8(&codes[row * codes_bytes]);
    if (IsNibble(scheme.code)) {
      OffsetBytesToNibbles(U8(from), job.panel.cols, offset, 0x0F, to);
    } else {
      OffsetBytes(U8(from), job.panel.cols, offset, 0xFF, to);
    }
  }
}

// Zero points as signed bytes, shaped like the scales.
Placement PlaceZeroBytes(const PackRequest& request, uint64_t n0, uint64_t rows) {
  const SchemeRows form(request);
  return {{.offset = form.Count(n0), .bytes = form.Count(rows)}};
}

void PackSignedZeros(const PackRequest& request, uint64_t rows,
                     std::span<const uint8_t> zero_points, std::span<std::byte> packed) {
  const SchemeRows form(request);
  const uint8_t offset = SignedOffset(request.scheme);
  for (uint64_t i = 0; i < form.Count(rows); ++i) {
    packed[i] = static_cast<std::byte>(zero_points[form.Canonical(i)] + offset);
  }
}

void UnpackSignedZeros(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                       std::span<uint8_t> zero_points) {
  const SchemeRows form(request);
  const uint8_t offset = SignedOffset(request.scheme);
  for (uint64_t i = 0; i < rows * request.groups(); ++i) {
    const auto stored = std::to_integer<uint8_t>(packed[form.Stored(i)]);
    zero_points[i] = static_cast<uint8_t>(stored - offset);
  }
}

constexpr PartRow CtZeroByte(Extents shape, Condition when) {
  return {.role = PartRole::kZeroPoint,
          .name = "weight_zero_point",
          .dtype = DType::kI8,
          .shape = shape,
          .when = when};
}

constexpr Condition AsymmetricPer(std::string_view text, bool (*when)(const PackRequest& r)) {
  return {text, when};
}

constexpr std::array kSignedZeroParts = {
    CtZeroByte({1}, AsymmetricPer("asymmetric weights, scales per tensor",
                                  [](const PackRequest& r) {
                                    return !r.scheme.symmetric && symbol::kPerTensor.Of(r);
                                  })),
    CtZeroByte({symbol::kN, 1}, AsymmetricPer("asymmetric weights, scales per channel",
                                              [](const PackRequest& r) {
                                                return !r.scheme.symmetric &&
                                                       symbol::kScalesPerChannel.Of(r);
                                              })),
    CtZeroByte({symbol::kN, symbol::kG}, AsymmetricPer("asymmetric weights, scales per group",
                                                       [](const PackRequest& r) {
                                                         return !r.scheme.symmetric &&
                                                                symbol::kPerGroup.Of(r);
                                                       })),
};

constexpr ZeroPointForm kSignedZeros{.parts = kSignedZeroParts,
                                     .place = PlaceZeroBytes,
                                     .pack = PackSignedZeros,
                                     .unpack = UnpackSignedZeros};

// Fills in what the rows of both packings have in common.
template <bool kAligned>
constexpr Layout PackedRows(Layout row) {
  row.version = 1;
  row.schemes = "integer weights of 1 to 8 bits, activations not quantized";
  row.constraints = kAligned ? "groups that divide K; activation order with groups"
                             : "groups that divide K; no activation order";
  row.isa = "any";
  row.checkpoint = true;
  row.side_parts = kCtPackedSides;
  row.eligible = EligiblePacked<kAligned>;
  row.weight = {.name = "weight_packed",
                .dtype = DType::kI32,
                .shape = {symbol::kN, {kAligned ? "⌈K/f⌉" : "⌈K·b/32⌉", [](const PackRequest& r) {
                                         return FormOf<kAligned>(r).Words(r.k);
                                       }}}};
  row.scales = kCtScaleRow;
  row.zero_points = {.form = &kZerosDownForm<kAligned>};
  row.cut = CutPacked<kAligned>;
  row.weight_bit = WeightBitPacked<kAligned>;
  row.place_weight = PlacePacked<kAligned>;
  row.pack_codes = PackPacked<kAligned>;
  row.unpack_codes = UnpackPacked<kAligned>;
  return row;
}

}  // namespace

constinit const Layout kCtPacked = PackedRows<false>({
    .id = "compressed-tensors/pack-quantized",
    .target = kCtName,
    .consumer = "readers of pack-quantized, 0.18 and later",
    .mirrors = "compressed-tensors 0.19, compressors/pack_quantized",
    .address = "bit n · 32⌈K·b/32⌉ + k · b",
    .notes = "codes are unsigned, also when symmetric",
    .fingerprint = "6f3259338d5866bab2d66ec22360b27d",
});

constinit const Layout kCtPackedAligned = PackedRows<true>({
    .id = "compressed-tensors-0.17/pack-quantized",
    .target = "compressed-tensors-0.17",
    .consumer = "readers of pack-quantized before 0.18",
    .mirrors = "compressed-tensors 0.17, compressors/quantized_compressors/pack_quantized.py",
    .address = "bit n · 32⌈K/f⌉ + k / f · 32 + k % f · b, f = ⌊32/b⌋ codes per word",
    .notes = "for 1, 2, 4 and 8 bits the same as dense",
    .fingerprint = "811e53f2d272240594b01bfec8c325c0",
});

constinit const Layout kCtInt = {
    .id = "compressed-tensors/int-quantized",
    .version = 1,
    .target = kCtName,
    .consumer = "readers of int-quantized",
    .mirrors = "compressed-tensors 0.19, compressors/naive_quantized",
    .schemes = "integer weights of 1 to 8 bits, quantized activations",
    .constraints = "groups that divide K; no activation order",
    .isa = "any",
    .address = "byte n · K + k",
    .notes = "codes are signed: for b bits, code − 2^(b-1)",
    .fingerprint = "04f88c333e939ca33eb9a6f91cdc478f",
    .checkpoint = true,
    .side_parts = kCtInputs,
    .eligible = EligibleInt,
    .weight = {.dtype = DType::kI8, .shape = {symbol::kN, symbol::kK}},
    .scales = kCtScaleRow,
    .zero_points = {.form = &kSignedZeros},
    .cut = CutInt,
    .weight_bit = WeightBitBytes,
    .place_weight = PlaceBytes,
    .pack_codes = PackInt,
    .unpack_codes = UnpackInt,
};

}  // namespace prepack
