#include "layouts/unit_blocks.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/unit_sums.h"
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

// The unit that K ends in, where it is not whole.
void PackLastUnit(const BlockPanel& block, const UnitBlocks& blocks,
                  std::span<const std::byte> codes, std::span<std::byte> packed) {
  const uint64_t whole = block.row_bytes / blocks.unit;
  const uint64_t rest = block.row_bytes % blocks.unit;
  std::byte* to = &packed[block.to + whole * blocks.width * blocks.unit];
  std::fill_n(to, blocks.width * blocks.unit, std::byte{0});
  for (uint64_t row = 0; row < block.rows; ++row) {
    std::memcpy(to + row * blocks.unit,
                &codes[block.from + row * block.row_bytes + whole * blocks.unit], rest);
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

// What is packed before it is summed: it must stay in half an L1 cache of 32 KiB.
constexpr uint64_t kSummedBytes = 16ULL * 1024;

}  // namespace

void PackUnits(const PackJob& job, const UnitBlocks& blocks, std::span<const std::byte> codes,
               std::span<std::byte> packed, std::span<int32_t> row_sums) {
  assert(row_sums.empty() || blocks.unit == 4);
  const TransposeUnitsFn transpose = TransposeUnitsFor(job.isa, blocks.unit);
  const SumUnitsFn sum_units = SumUnitsFor(job.isa);
  const uint64_t step = blocks.width * blocks.unit;  // bytes of a unit of all channels
  const bool at_end = job.panel.k0 + job.panel.cols == job.request.k;
  ForBlocks(job, blocks, [&](const BlockPanel& block) {
    std::byte* to = packed.data() + block.to;
    const auto sum = [&](uint64_t first, uint64_t count) {
      if (row_sums.empty()) return;
      sum_units(reinterpret_cast<const int8_t*>(to + first * step), step, count, block.rows,
                &row_sums[block.row]);
    };
    const uint64_t whole = block.row_bytes / blocks.unit;
    const uint64_t most =
        row_sums.empty() ? whole : std::clamp<uint64_t>(kSummedBytes / step, 1, kMaxSumUnits);
    for (uint64_t first = 0; first < whole; first += most) {
      const uint64_t count = std::min(most, whole - first);
      transpose(codes.data() + block.from + first * blocks.unit, block.row_bytes, block.rows, count,
                to + first * step, step);
      sum(first, count);
    }
    FillMissingChannels(block, blocks, whole, to);
    if (!at_end) return;
    if (block.row_bytes % blocks.unit != 0) {
      PackLastUnit(block, blocks, codes, packed);
      sum(whole, 1);
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
