#pragma once

// How large the pieces are that a module is read and packed in. A tile is packed and written as a
// whole; it is read panel by panel.
//
// Most packed forms keep some output channels with all of their input channels together: their
// tiles are strips of output channels. Others are a matrix [K, N], whose tiles are some input
// channels of all output channels.
//
// Where a file holds all input channels of an output channel side by side, a panel of a strip is
// all of it. Where it holds all output channels of an input channel side by side, a narrow strip
// would pick a few bytes from each of many far places; such strips are wide, and cut along K.

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "prepack/base/status.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// Panel and packed form together fit into an L2 cache of 512 KiB with room to spare.
inline constexpr uint64_t kPanelBytes = 128ULL * 1024;

// Tiles of a matrix [K, N] are at most so large, whatever N is, but for the smallest number of
// input channels that can be packed.
inline constexpr uint64_t kMatrixTileBytes = 4ULL * 1024 * 1024;

// Panels are cut along K at multiples of this, too: a multiple of any format's units, so that no
// code has to be read twice.
inline constexpr uint64_t kPanelColsMultiple = 256;
// The tiles of a matrix [K, N] are so many times as long where the source holds output channels.
inline constexpr uint64_t kPiecesOfRows = 2;

// In activation order codes change places as columns of this many output channels, or of multiples
// (kernels/nibble_columns_body.h). Fewer would take several times as long for each code, which is
// worse than leaving the L2 cache.
inline constexpr uint64_t kReorderRows = 64;

// Where the tiles and panels of a packed form may be cut.
struct TileCut {
  bool by_inputs = false;   // tiles are some input channels of all output channels
  uint64_t rows = 1;        // tiles and panels begin at multiples of this many output channels,
  uint64_t cols = 1;        // and of this many input channels
  uint64_t strip_rows = 1;  // strips of scales and zero points: of this many output channels
};

struct TileShape {
  uint64_t rows = 0;  // of a tile; the last one may have fewer
  uint64_t cols = 0;
  uint64_t panel_rows = 0;  // of a panel; the last one of a tile may have fewer
  uint64_t panel_cols = 0;
};

// Rows of `k` codes each that make about a panel: a multiple of `multiple`, at least that.
constexpr uint64_t PanelRowsFor(CodeType code, uint64_t k, uint64_t multiple) {
  const uint64_t rows = kPanelBytes / PanelRowBytes(code, k);
  return std::max(multiple, rows / multiple * multiple);
}

// The same for the panels of a module.
inline uint64_t PanelRowsOf(const QuantizedLinear& linear, uint64_t cols, const TileCut& cut) {
  const uint64_t rows = PanelRowsFor(linear.scheme().code, cols, cut.rows);
  const uint64_t least = linear.reordered() ? CeilDiv(kReorderRows, cut.rows) * cut.rows : 0;
  return std::max(rows, least);
}

inline TileShape StripShape(const QuantizedLinear& linear, const TileCut& cut) {
  const CodeType code = linear.scheme().code;
  const uint64_t k = linear.k();
  const uint64_t narrow = PanelRowsOf(linear, k, cut);
  if (narrow >= linear.wide_rows()) {
    return {.rows = narrow, .cols = k, .panel_rows = narrow, .panel_cols = k};
  }
  const uint64_t rows = CeilDiv(linear.wide_rows(), cut.rows) * cut.rows;
  const uint64_t unit = std::lcm(kPanelColsMultiple, cut.cols);
  const uint64_t cols = kPanelBytes / PanelRowBytes(code, rows) / unit;
  return {.rows = rows,
          .cols = k,
          .panel_rows = rows,
          .panel_cols = std::min(k, std::max<uint64_t>(cols, 1) * unit)};
}

inline TileShape MatrixShape(const QuantizedLinear& linear, const TileCut& cut) {
  const CodeType code = linear.scheme().code;
  const uint64_t row_of_all = PanelRowBytes(code, linear.n());
  const uint64_t unit = std::lcm(uint64_t{8}, cut.cols);  // the formats' words hold eight codes
  const uint64_t most = std::max(unit, kMatrixTileBytes / row_of_all / unit * unit);
  // Where a file holds output channels, each is read in pieces, and longer ones are faster.
  const uint64_t multiple =
      linear.wide_rows() > 1 ? kPanelColsMultiple : kPanelColsMultiple * kPiecesOfRows;
  // In activation order all of an output channel is read whatever is wanted of it: the tiles are as
  // few as they can be.
  const uint64_t wanted = linear.reordered() ? linear.k() : std::lcm(multiple, cut.cols);
  const uint64_t cols = std::min({most, wanted, linear.k()});
  return {.rows = linear.n(),
          .cols = cols,
          .panel_rows = PanelRowsOf(linear, cols, cut),
          .panel_cols = cols};
}

// The shape in which the module is read and packed fastest.
inline TileShape TileShapeFor(const QuantizedLinear& linear, const TileCut& cut) {
  return cut.by_inputs ? MatrixShape(linear, cut) : StripShape(linear, cut);
}

// A module of n by k weights cut into tiles.
class TileGrid {
 public:
  TileGrid(uint64_t n, uint64_t k, const TileShape& shape)
      : n_(n), k_(k), shape_(shape), across_(CeilDiv(k, shape.cols)) {}

  size_t size() const { return static_cast<size_t>(CeilDiv(n_, shape_.rows) * across_); }
  PanelRange At(size_t index) const {
    const uint64_t n0 = index / across_ * shape_.rows;
    const uint64_t k0 = index % across_ * shape_.cols;
    return {.n0 = n0,
            .rows = std::min(shape_.rows, n_ - n0),
            .k0 = k0,
            .cols = std::min(shape_.cols, k_ - k0)};
  }

 private:
  uint64_t n_;
  uint64_t k_;
  TileShape shape_;
  uint64_t across_;
};

// Calls visit(panel) for the panels of a tile in the order in which they are packed; stops at the
// first status that is not OK.
template <typename Visit>
Status ForPanels(const PanelRange& tile, const TileShape& shape, Visit visit) {
  for (uint64_t row = 0; row < tile.rows; row += shape.panel_rows) {
    for (uint64_t col = 0; col < tile.cols; col += shape.panel_cols) {
      PREPACK_TRY(visit(PanelRange{.n0 = tile.n0 + row,
                                   .rows = std::min(shape.panel_rows, tile.rows - row),
                                   .k0 = tile.k0 + col,
                                   .cols = std::min(shape.panel_cols, tile.cols - col)}));
    }
  }
  return {};
}

}  // namespace prepack
