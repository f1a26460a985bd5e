#include "prepack/layouts/placement.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/memory.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/model/panel_shape.h"

namespace prepack {
namespace {

// A panel of whole rows is one piece of the tile; of a narrower one, every row is.
template <typename Move>
void ForPieces(const PackJob& job, Move move) {
  const CodeType code = job.request.scheme.code;
  const size_t row_bytes = PanelRowBytes(code, job.request.k);
  const size_t piece_bytes = PanelRowBytes(code, job.panel.cols);
  const size_t first = (job.panel.n0 - job.tile.n0) * row_bytes;
  if (job.panel.cols == job.request.k) return move(size_t{0}, first, job.panel.rows * row_bytes);
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    move(row * piece_bytes, first + row * row_bytes + PanelRowBytes(code, job.panel.k0),
         piece_bytes);
  }
}

}  // namespace

uint64_t RowMajorWeightBit(const PackRequest& request, uint64_t n, uint64_t k) {
  return (n * request.k + k) * CodeBits(request.scheme.code);
}

void PackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> codes,
                  std::span<std::byte> packed) {
  ForPieces(job, [&](size_t of_panel, size_t of_tile, size_t bytes) {
    XorCopy(codes.subspan(of_panel, bytes), mask, packed.subspan(of_tile, bytes));
  });
}

void UnpackRowMajor(const PackJob& job, std::byte mask, std::span<const std::byte> packed,
                    std::span<std::byte> codes) {
  ForPieces(job, [&](size_t of_panel, size_t of_tile, size_t bytes) {
    XorCopy(packed.subspan(of_tile, bytes), mask, codes.subspan(of_panel, bytes));
  });
}

TileCut CutAnywhere(const PackRequest& /*request*/) {
  return {};
}

void PackPlain(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  PackRowMajor(job, std::byte{0}, codes, packed);
}

void UnpackPlain(const PackJob& job, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  UnpackRowMajor(job, std::byte{0}, packed, codes);
}

Status SumSignedCodes(const QuantizedLinear& linear, uint64_t n0, uint64_t rows, PageBuffer& panel,
                      std::span<int32_t> sums) {
  const TileShape shape = StripShape(linear, {});
  std::ranges::fill(sums, 0);
  const PanelRange all{.n0 = n0, .rows = rows, .k0 = 0, .cols = linear.k()};
  return ForPanels(all, shape, [&](const PanelRange& range) -> Status {
    panel.resize(PanelBytes(CodeType::kS8, range));
    PREPACK_TRY(linear.ReadCodes(range, panel));
    Kernels().sum_rows(reinterpret_cast<const int8_t*>(panel.data()), range.cols, range.rows,
                       range.cols, &sums[range.n0 - n0]);
    return {};
  });
}

void PackScaledSums(DType scale_value, std::span<const int32_t> sums, std::span<const float> scales,
                    std::span<std::byte> packed) {
  for (size_t row = 0; row < sums.size(); ++row) {
    const float sum = static_cast<float>(sums[row]) * RoundTo(scale_value, scales[row]);
    std::memcpy(&packed[row * sizeof sum], &sum, sizeof sum);
  }
}

namespace {

// One block of a panel: some rows, and where they go.
struct BlockPanel {
  uint64_t row;        // of the panel, its first one
  uint64_t rows;       // at most the width
  uint64_t row_bytes;  // of the panel
  size_t from;         // of the first row in the panel
  size_t to;           // of the panel's first unit in the tile
};

template <typename Visit>
void ForBlocks(const PackJob& job, const UnitBlocks& blocks, Visit visit) {
  const CodeType code = job.request.scheme.code;
  const uint64_t row_bytes = PanelRowBytes(code, job.panel.cols);
  const uint64_t first_unit = PanelRowBytes(code, job.panel.k0) / blocks.unit;
  for (uint64_t row = 0; row < job.panel.rows; row += blocks.width) {
    const uint64_t block = (job.panel.n0 - job.tile.n0 + row) / blocks.width;
    visit(BlockPanel{.row = row,
                     .rows = std::min(blocks.width, job.panel.rows - row),
                     .row_bytes = row_bytes,
                     .from = row * row_bytes,
                     .to = block * blocks.block_bytes + first_unit * blocks.width * blocks.unit});
  }
}

void PackWholeUnits(const BlockPanel& block, const UnitBlocks& blocks, const std::byte* codes,
                    std::byte* to, std::span<int32_t> row_sums) {
  const uint64_t whole = block.row_bytes / blocks.unit;
  const uint64_t step = blocks.width * blocks.unit;  // bytes of a unit of all channels
  if (row_sums.empty()) {
    return TransposeUnits(blocks.unit)(codes, block.row_bytes, block.rows, whole, to, step);
  }
  assert(blocks.unit == 4);
  Kernels().transpose_summed_words(codes, block.row_bytes, block.rows, whole, to, step,
                                   &row_sums[block.row]);
}

// The unit that K ends in, where it is not whole.
void PackLastUnit(const BlockPanel& block, const UnitBlocks& blocks, const std::byte* codes,
                  std::byte* to, std::span<int32_t> row_sums) {
  const uint64_t rest = block.row_bytes % blocks.unit;
  std::fill_n(to, blocks.width * blocks.unit, std::byte{0});
  for (uint64_t row = 0; row < block.rows; ++row) {
    const std::byte* last = codes + (row + 1) * block.row_bytes - rest;
    std::memcpy(to + row * blocks.unit, last, rest);
    for (uint64_t i = 0; i < rest && !row_sums.empty(); ++i) {
      row_sums[block.row + row] += std::to_integer<int8_t>(last[i]);
    }
  }
}

// Zeros for the channels that a block lacks, in `count` units at `to`.
void FillMissingChannels(const BlockPanel& block, const UnitBlocks& blocks, uint64_t count,
                         std::byte* to) {
  if (block.rows == blocks.width) return;
  const uint64_t step = blocks.width * blocks.unit;
  for (uint64_t unit = 0; unit < count; ++unit) {
    std::fill(to + unit * step + block.rows * blocks.unit, to + (unit + 1) * step, std::byte{0});
  }
}

}  // namespace

void PackUnits(const PackJob& job, const UnitBlocks& blocks, std::span<const std::byte> codes,
               std::span<std::byte> packed, std::span<int32_t> row_sums) {
  const uint64_t step = blocks.width * blocks.unit;
  const bool at_end = job.panel.k0 + job.panel.cols == job.request.k;
  ForBlocks(job, blocks, [&](const BlockPanel& block) {
    const std::byte* from = codes.data() + block.from;
    std::byte* to = packed.data() + block.to;
    const uint64_t whole = block.row_bytes / blocks.unit;
    PackWholeUnits(block, blocks, from, to, row_sums);
    FillMissingChannels(block, blocks, whole, to);
    if (!at_end) return;
    if (block.row_bytes % blocks.unit != 0) {
      PackLastUnit(block, blocks, from, to + whole * step, row_sums);
    }
    const uint64_t first_unit = PanelRowBytes(job.request.scheme.code, job.panel.k0) / blocks.unit;
    const uint64_t used = CeilDiv(block.row_bytes, blocks.unit);
    std::fill_n(to + used * step, (blocks.units - first_unit - used) * step, std::byte{0});
  });
}

void UnpackUnits(const PackJob& job, const UnitBlocks& blocks, std::span<const std::byte> packed,
                 std::span<std::byte> codes) {
  TransposeUnitsFn* const transpose = TransposeUnits(blocks.unit);
  const uint64_t step = blocks.width * blocks.unit;
  ForBlocks(job, blocks, [&](const BlockPanel& block) {
    const uint64_t whole = block.row_bytes / blocks.unit;
    const uint64_t rest = block.row_bytes % blocks.unit;
    transpose(packed.data() + block.to, step, whole, block.rows, codes.data() + block.from,
              block.row_bytes);
    for (uint64_t row = 0; row < block.rows && rest != 0; ++row) {
      std::memcpy(&codes[block.from + row * block.row_bytes + whole * blocks.unit],
                  &packed[block.to + whole * step + row * blocks.unit], rest);
    }
  });
}

void AddCodeSums(const PackJob& job, int32_t factor, std::span<const int32_t> row_sums,
                 std::span<std::byte> sums) {
  for (uint64_t row = 0; row < job.panel.rows; ++row) {
    uint32_t sum = 0;
    std::byte* at = &sums[row * sizeof sum];
    if (job.panel.k0 != 0) std::memcpy(&sum, at, sizeof sum);
    sum += static_cast<uint32_t>(factor) * static_cast<uint32_t>(row_sums[row]);
    std::memcpy(at, &sum, sizeof sum);
  }
}

}  // namespace prepack
