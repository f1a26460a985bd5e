// Sums of rows, added to what is there.

#include "prepack/kernels/row_sums.h"

#include "catch.h"
#include "kernels/edge_buffer.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

constexpr int32_t kRowBefore = -1000003;

// Cuts of columns around those of the kernels, which go by 16, 32 and 64 bytes.
const Sizes kBytes = {0,  1,  2,  15, 16, 17, 31,  32,  33,  47,  48,
                      49, 63, 64, 65, 79, 96, 113, 127, 128, 1021};

// One sum more than there are rows, which must stay.
std::vector<int32_t> SumsBefore(size_t rows) {
  return std::vector<int32_t>(rows + 1, kRowBefore);
}

TEST_CASE("rows of bytes are summed on every instruction set") {
  SplitMix64 random(33);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t rows : Sizes{0, 1, 2, 3, 4, 5, 9}) {
      for (const size_t cols : kBytes) {
        CAPTURE(IsaName(isa), rows, cols);
        const size_t stride = cols + 3;
        const EdgeBuffer buffer(StridedBytes(rows, cols, stride), random);
        const auto* codes = reinterpret_cast<const int8_t*>(buffer.data());
        std::vector<int32_t> sums = SumsBefore(rows);
        KernelsFor(isa).sum_rows(codes, stride, rows, cols, sums.data());
        std::vector<int32_t> expected = SumsBefore(rows);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t k = 0; k < cols; ++k) expected[r] += codes[r * stride + k];
        }
        REQUIRE(sums == expected);
      }
    }
  }
}

TEST_CASE("the longest rows of the largest codes have sums that fit") {
  const std::vector<int8_t> least(kMaxSumCols, -128);
  const std::vector<int8_t> greatest(kMaxSumCols, 127);
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    SumRowsFn* const sum_rows = KernelsFor(isa).sum_rows;
    std::vector<int32_t> sums(2);
    sum_rows(least.data(), 0, 1, kMaxSumCols, &sums[0]);
    sum_rows(greatest.data(), 0, 1, kMaxSumCols, &sums[1]);
    CHECK(sums == std::vector<int32_t>{-2147483647 - 1, 127 << 24});
  }
}

}  // namespace
}  // namespace prepack::testing
