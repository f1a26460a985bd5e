#include "layouts/unit_blocks.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/unit_transpose.h"

namespace prepack {
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

void PackWholeUnits(const PackJob& job, const BlockPanel& block, const UnitBlocks& blocks,
                    const std::byte* codes, std::byte* to, std::span<int32_t> row_sums) {
  const uint64_t whole = block.row_bytes / blocks.unit;
  const uint64_t step = blocks.width * blocks.unit;  // bytes of a unit of all channels
  if (row_sums.empty()) {
    return TransposeUnitsFor(job.isa, blocks.unit)(codes, block.row_bytes, block.rows, whole, to,
                                                   step);
  }
  assert(blocks.unit == 4);
  UnitTransposeFor(job.isa).summed_words(codes, block.row_bytes, block.rows, whole, to, step,
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
    PackWholeUnits(job, block, blocks, from, to, row_sums);
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
  const TransposeUnitsFn transpose = TransposeUnitsFor(job.isa, blocks.unit);
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
