// AWQ's GEMM storage, and AutoRound's of the same tensors. Mirrors AutoAWQ 0.2.9,
// awq/modules/linear/gemm.py (WQLinear_GEMM), and auto-round 0.15,
// export/export_to_autoround/export.py.
//
//     qweight  I32 [K, N/8]  word [k, n/8] holds the codes of eight output channels, in the order
//                            0 2 4 6 1 3 5 7, the first in the lowest bits
//     qzeros   I32 [G, N/8]  the zero points in the same order; symmetric weights have 8 throughout
//     scales   F16 or BF16 [G, N]

#include <array>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/kernels/awq.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_matrix.h"
#include "prepack/layouts/checkpoint_parts.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/stored_codes.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr std::string_view kAwqName = "AWQ";

Eligibility EligibleAwq(const PackRequest& request) {
  return AllOf({
      IntegerCodes(request, {4}, "integer codes of 4 bits"),
      NoActivations(request, kAwqName),
      NoBlocks(request, kAwqName),
      WholeGroups(request, kAwqName),
      ZerosAreCodes(request, kAwqName),
      ScalesOfHalf(request, kAwqName),
      NoOrder(request, kAwqName),
      OutputsFirst(request, kAwqName),
      MultipleOf("N", request.n, kAwqCodesPerWord, "eight output channels share a word"),
      BiasIsFloat(request),
  });
}

TileCut CutAwq(const PackRequest& /*request*/) {
  return {.by_inputs = true, .rows = kAwqCodesPerWord, .cols = 2, .strip_rows = kAwqCodesPerWord};
}

uint64_t WeightBitAwq(const PackRequest& request, uint64_t n, uint64_t k) {
  const uint64_t word = k * (request.n / kAwqCodesPerWord) + n / kAwqCodesPerWord;
  return word * 32 + AwqNibble(static_cast<unsigned>(n % kAwqCodesPerWord)) * uint64_t{4};
}

// A tile is a run for each input channel; of all output channels, these follow each other.
Placement PlaceAwq(const PackRequest& request, const PanelRange& tile) {
  const uint64_t row_bytes = request.n / 2;
  if (tile.rows == request.n) {
    return {{.offset = tile.k0 * row_bytes, .bytes = tile.cols * row_bytes}};
  }
  return {{.offset = tile.k0 * row_bytes + tile.n0 / 2,
           .bytes = tile.rows / 2,
           .count = tile.cols,
           .stride = tile.cols == 1 ? 0 : row_bytes}};
}

size_t FirstAwqByte(const PackJob& job) {
  return (job.panel.k0 - job.tile.k0) * (job.tile.rows / 2) + (job.panel.n0 - job.tile.n0) / 2;
}

// From columns, of which the even channel is in the low half, in place or not.
void OrderColumns(const PackJob& job, const std::byte* columns, size_t stride, std::byte* packed) {
  Kernels().disorder_awq_columns(U8(columns), stride, job.panel.cols, job.panel.rows, U8(packed),
                                 job.tile.rows / 2);
}

void PackAwq(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  std::byte* to = &packed[FirstAwqByte(job)];
  const size_t stride = job.tile.rows / 2;
  NibbleRowsToColumns(U8(codes.data()), PanelRowBytes(CodeType::kU4, job.panel.cols),
                      job.panel.rows, job.panel.cols, 0, U8(to), stride);
  OrderColumns(job, to, stride, to);
}

void PackAwqColumns(const PackJob& job, std::span<const std::byte> columns,
                    std::span<std::byte> packed) {
  OrderColumns(job, columns.data(), job.panel.rows / 2, &packed[FirstAwqByte(job)]);
}

void UnpackAwq(const PackJob& job, std::span<const std::byte> packed, std::span<std::byte> codes) {
  const size_t column_bytes = job.panel.rows / 2;
  Scratch<uint8_t> columns(job.panel.cols * column_bytes);
  Kernels().order_awq_columns(U8(&packed[FirstAwqByte(job)]), job.tile.rows / 2, job.panel.cols,
                              job.panel.rows, columns.data(), column_bytes);
  NibbleColumnsToRows(columns.data(), column_bytes, job.panel.rows, job.panel.cols, 0,
                      U8(codes.data()), PanelRowBytes(CodeType::kU4, job.panel.cols));
}

Placement PlaceAwqZeros(const PackRequest& request, uint64_t n0, uint64_t rows) {
  return {{.offset = n0 / 2,
           .bytes = rows / 2,
           .count = request.groups(),
           .stride = request.groups() == 1 ? 0 : request.n / 2}};
}

void PackAwqZeros(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
                  std::span<std::byte> packed) {
  Scratch<uint8_t> columns(rows * request.groups());
  ZeroColumns(request, rows, zero_points, 0, {columns.data(), columns.size()});
  for (uint64_t g = 0; g < request.groups(); ++g) {
    std::byte* words = &packed[g * (rows / 2)];
    StoreZeros({}, &columns[g * rows], rows, words);
    Kernels().disorder_awq_columns(U8(words), 0, 1, rows, U8(words), 0);
  }
}

void UnpackAwqZeros(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                    std::span<uint8_t> zero_points) {
  Scratch<uint8_t> columns(rows * request.groups());
  Scratch<std::byte> words(rows / 2);
  for (uint64_t g = 0; g < request.groups(); ++g) {
    Kernels().order_awq_columns(U8(&packed[g * (rows / 2)]), 0, 1, rows, U8(words.data()), 0);
    LoadZeros({}, words.data(), rows, &columns[g * rows]);
  }
  ZeroRows(request, rows, {columns.data(), columns.size()}, 0, zero_points);
}

constexpr Extent kEighths{"N/8", [](const PackRequest& r) { return r.n / kAwqCodesPerWord; }};

constexpr std::array kAwqZeroParts = {PartRow{.role = PartRole::kZeroPoint,
                                              .name = "qzeros",
                                              .dtype = DType::kI32,
                                              .shape = {symbol::kG, kEighths}}};

constexpr ZeroPointForm kAwqZeros{
    .parts = kAwqZeroParts, .place = PlaceAwqZeros, .pack = PackAwqZeros, .unpack = UnpackAwqZeros};

constexpr PartRow kAwqWeight{
    .name = "qweight", .dtype = DType::kI32, .shape = {symbol::kK, kEighths}};

// Fills in what both rows have in common: all but who reads them.
constexpr Layout AwqRows(Layout row) {
  row.version = 1;
  row.isa = "any";
  row.checkpoint = true;
  row.schemes = "integer weights of 4 bits, activations not quantized";
  row.constraints = "N % 8 = 0, groups that divide K, no activation order";
  row.address = "nibble k · N + n / 8 · 8 + n % 8 / 2 + n % 2 · 4";
  row.notes = "symmetric weights have the zero point 8";
  row.eligible = EligibleAwq;
  row.weight = kAwqWeight;
  row.scales = kScalesByGroup;
  row.zero_points = {.form = &kAwqZeros};
  row.cut = CutAwq;
  row.weight_bit = WeightBitAwq;
  row.place_weight = PlaceAwq;
  row.pack_codes = PackAwq;
  row.unpack_codes = UnpackAwq;
  row.pack_columns = PackAwqColumns;
  return row;
}

}  // namespace

constinit const Layout kAwqGemm = AwqRows({
    .id = "awq/gemm",
    .target = "awq",
    .consumer = "readers of quant_method awq, version gemm",
    .mirrors = "AutoAWQ 0.2.9, awq/modules/linear/gemm.py",
    .fingerprint = "9aeb03cec36289dfd492d89d15b49916",
});

constinit const Layout kAutoRoundAwq = AwqRows({
    .id = "auto-round-awq/auto_awq",
    .target = "auto-round-awq",
    .consumer = "readers of packing_format auto_round:auto_awq",
    .mirrors = "auto-round 0.15, export/export_to_autoround/export.py",
    .fingerprint = "9aeb03cec36289dfd492d89d15b49916",
});

}  // namespace prepack
