#include "prepack/model/panel_shape.h"

#include "catch.h"
#include "model/fixed_linear.h"

namespace prepack::testing {
namespace {

TileShape ShapeOf(uint64_t n, uint64_t k, uint32_t wide_rows, const TileCut& cut) {
  FixedLinear linear({.code = CodeType::kU4, .bits = 4, .group_size = k}, n, k, {}, {}, {}, {});
  linear.SetWideRows(wide_rows);
  return TileShapeFor(linear, cut);
}

TEST_CASE("a strip is as many output channels as make a panel, a multiple of what is asked") {
  const TileShape shape = ShapeOf(4096, 4096, 1, {.rows = 32});
  CHECK(shape.rows == 64);  // 128 KiB / 2048 bytes
  CHECK(shape.cols == 4096);
  CHECK(shape.panel_rows == 64);
  CHECK(shape.panel_cols == 4096);
  CHECK(ShapeOf(4096, 1 << 20, 1, {.rows = 32}).rows == 32);
}

TEST_CASE("the strips of a file that is stored along N are wide, and their panels cut along K") {
  const TileShape shape = ShapeOf(4096, 4096, 512, {.rows = 32, .cols = 96});
  CHECK(shape.rows == 512);
  CHECK(shape.cols == 4096);
  CHECK(shape.panel_rows == 512);
  CHECK(shape.panel_cols == 768);  // the least common multiple of 256 and 96
}

TEST_CASE("the tiles of a matrix K by N hold all output channels, but not more than fits") {
  const TileCut cut{.by_inputs = true, .rows = 16, .cols = 1};
  const TileShape shape = ShapeOf(4096, 4096, 1, cut);
  CHECK(shape.rows == 4096);
  CHECK(shape.cols == 512);
  CHECK(shape.panel_rows == 512);
  CHECK(shape.panel_cols == 512);
  CHECK(ShapeOf(4096, 4096, 8, cut).cols == 256);  // of a file that is stored along N
  const TileShape vocabulary = ShapeOf(152'064, 4096, 1, cut);
  CHECK(vocabulary.cols == 48);
  CHECK(vocabulary.cols * 152'064 / 2 <= kMatrixTileBytes);
  CHECK(ShapeOf(64, 100, 1, cut).cols == 100);
}

TEST_CASE("tiles and panels cover a module exactly once, in ascending order") {
  const TileShape shape{.rows = 6, .cols = 8, .panel_rows = 4, .panel_cols = 3};
  const TileGrid grid(10, 11, shape);
  CHECK(grid.size() == 4);
  CHECK(grid.At(3) == PanelRange{.n0 = 6, .rows = 4, .k0 = 8, .cols = 3});
  std::vector<int> count(110);
  for (size_t i = 0; i < grid.size(); ++i) {
    CHECK(ForPanels(grid.At(i), shape, [&](const PanelRange& panel) -> Status {
            for (uint64_t n = panel.n0; n < panel.n0 + panel.rows; ++n) {
              for (uint64_t k = panel.k0; k < panel.k0 + panel.cols; ++k) ++count[n * 11 + k];
            }
            return {};
          }).ok());
  }
  CHECK(count == std::vector<int>(110, 1));
}

TEST_CASE("the first error ends a walk over panels") {
  const TileShape shape{.rows = 4, .cols = 4, .panel_rows = 2, .panel_cols = 2};
  int panels = 0;
  const Status status =
      ForPanels({.n0 = 0, .rows = 4, .k0 = 0, .cols = 4}, shape, [&](const PanelRange&) -> Status {
        return ++panels == 2 ? Malformed("here", "bad") : Status();
      });
  CHECK(panels == 2);
  CHECK(status.kind() == ErrorKind::kMalformed);
}

}  // namespace
}  // namespace prepack::testing
