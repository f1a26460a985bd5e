#pragma once

// Drawings of packed weights for people, made from the closed form of the layout (weight_bit), so
// that they cannot say anything else than the bytes do.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "prepack/layouts/layout.h"

namespace prepack {

struct WeightPlace {
  uint64_t n = 0;
  uint64_t k = 0;

  friend bool operator==(const WeightPlace&, const WeightPlace&) = default;
};

// A nibble, byte or 16-bit element of the weight part: which weight it is, or none, where the
// layout keeps sums or padding.
using WeightCell = std::optional<WeightPlace>;

// Bits of a cell: as many as a code has.
uint32_t WeightCellBits(const PackRequest& request);

// The cells of bytes [first, first + bytes) of the weight part, low nibble first; both are
// multiples of a cell's bytes. Looks at every weight of the module.
std::vector<WeightCell> WeightCells(const Layout& layout, const PackRequest& request,
                                    uint64_t first, uint64_t bytes);

// Puts the weights of `near` whose bits begin in bytes [first, first + bytes of the cells) into
// their cells: `bit_of` says where the bits of one begin.
void FillCells(uint32_t cell_bits, uint64_t first, const PanelRange& near,
               const std::function<uint64_t(uint64_t n, uint64_t k)>& bit_of,
               std::vector<WeightCell>& cells);

// A cell's text as it is to be printed, e.g. in colour.
using PaintCell = std::function<std::string(const WeightCell& cell, std::string text)>;

// Rows of the grid that DrawWeight draws, from the cells that `begins` counts, which are the first
// of a byte.
std::string DrawCells(const std::vector<WeightCell>& cells, uint32_t cell_bits,
                      const std::vector<uint64_t>& begins, const PaintCell& paint = nullptr);
// The first cells of consecutive rows, for as many cells.
std::vector<uint64_t> ConsecutiveRows(uint64_t cells);

// The first bytes of the weight, and every place where the pattern goes on in a way that the bytes
// before do not show: the next unit, the next block, sums. A row begins with its offset in bytes:
//
//     byte 0  n0k0 n1k0  n2k0 n3k0  …
//     byte 8  n0k1 n1k1  n2k1 n3k1  …
//
// "·" stands for a cell that is no weight. Every line ends with a newline.
std::string DrawWeight(const Layout& layout, const PackRequest& request);

// A small module for DrawWeight that the layout takes: with N = 100 if it can be, so that padding
// shows.
PackRequest DrawnExample(const Layout& layout);

}  // namespace prepack
