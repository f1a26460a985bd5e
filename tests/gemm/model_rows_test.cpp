#include "prepack/gemm/model_operands.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("a row is sparse when less than an eighth of it differs from its base") {
  std::vector<int16_t> x(64, 0);                          // four rows of 16
  x[3] = 5;                                               // row 0: one of sixteen
  x[16] = x[31] = -1;                                     // row 1: two
  std::fill(x.begin() + 32, x.begin() + 48, int16_t{7});  // row 2: all, if its base were 0
  x[47] = 0;
  const std::vector<int16_t> base = {0, 0, 7, 0};
  const ModelRows<int16_t> rows = DivideRows<int16_t>(x, 16, base);
  CHECK(rows.dense == std::vector<uint64_t>{1});
  REQUIRE(rows.sparse.size() == 3);
  CHECK(rows.sparse[0].m == 0);
  CHECK(rows.sparse[0].base == 0);
  REQUIRE(rows.sparse[0].entries.size() == 1);
  CHECK(rows.sparse[0].entries[0].k == 3);
  CHECK(rows.sparse[0].entries[0].x == 5);
  CHECK(rows.sparse[1].m == 2);
  CHECK(rows.sparse[1].base == 7);
  REQUIRE(rows.sparse[1].entries.size() == 1);
  CHECK(rows.sparse[1].entries[0].k == 15);
  CHECK(rows.sparse[1].entries[0].x == 0);
  CHECK(rows.sparse[2].entries.empty());
}

TEST_CASE("numbers of a sparse row are found by their input channels") {
  const SparseModelRow<float> row{
      .m = 0, .base = 0, .entries = {{.k = 2, .x = 1}, {.k = 4, .x = 2}, {.k = 9, .x = 3}}};
  CHECK(row.Between(0, 2).empty());
  CHECK(row.Between(2, 4).size() == 1);
  CHECK(row.Between(3, 10).size() == 2);
  CHECK(row.Between(3, 10)[0].x == 2);
  CHECK(row.Between(10, 20).empty());
}

}  // namespace
}  // namespace prepack::testing
