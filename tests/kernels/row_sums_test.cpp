// Sums of rows, added to what is there.

#include "kernels/row_sums.h"

#include "catch.h"
#include "kernels/edge_buffer.h"

namespace prepack {
namespace {

constexpr int32_t kBefore = -1000003;

// Cuts of columns around those of the kernels, which go by 16, 32 and 64 bytes.
const Sizes kBytes = {0,  1,  2,  15, 16, 17, 31,  32,  33,  47,  48,
                      49, 63, 64, 65, 79, 96, 113, 127, 128, 1021};

// One sum more than there are rows, which must stay.
std::vector<int32_t> SumsBefore(size_t rows) {
  return std::vector<int32_t>(rows + 1, kBefore);
}

TEST_CASE("Rows of bytes are summed on every instruction set") {
  SplitMix64 random(33);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t rows : Sizes{0, 1, 2, 3, 4, 5, 9}) {
      for (const size_t cols : kBytes) {
        CAPTURE(IsaName(isa), rows, cols);
        const size_t stride = cols + 3;
        const EdgeBuffer buffer(StridedBytes(rows, cols, stride), random);
        const auto* codes = reinterpret_cast<const int8_t*>(buffer.data());
        std::vector<int32_t> sums = SumsBefore(rows);
        RowSumsFor(isa).bytes(codes, stride, rows, cols, sums.data());
        std::vector<int32_t> expected = SumsBefore(rows);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t k = 0; k < cols; ++k) expected[r] += codes[r * stride + k];
        }
        REQUIRE(sums == expected);
      }
    }
  }
}

TEST_CASE("Rows of nibbles are summed on every instruction set") {
  SplitMix64 random(34);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t rows : Sizes{0, 1, 2, 3, 4, 5, 32}) {
      for (const size_t bytes : kBytes) {
        CAPTURE(IsaName(isa), rows, bytes);
        const size_t stride = bytes + 1;
        const EdgeBuffer codes(StridedBytes(rows, bytes, stride), random);
        std::vector<int32_t> sums = SumsBefore(rows);
        RowSumsFor(isa).nibbles(codes.data(), stride, rows, 2 * bytes, sums.data());
        std::vector<int32_t> expected = SumsBefore(rows);
        for (size_t r = 0; r < rows; ++r) {
          for (size_t k = 0; k < 2 * bytes; ++k) {
            expected[r] += static_cast<int32_t>(NibbleAt(codes.data() + r * stride, k));
          }
        }
        REQUIRE(sums == expected);
      }
    }
  }
}

TEST_CASE("The longest rows of the largest codes have sums that fit") {
  const std::vector<int8_t> least(kMaxSumCols, -128);
  const std::vector<int8_t> greatest(kMaxSumCols, 127);
  const std::vector<uint8_t> nibbles(kMaxSumCols / 2, 0xFF);
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    const RowSums& kernels = RowSumsFor(isa);
    std::vector<int32_t> sums(3);
    kernels.bytes(least.data(), 0, 1, kMaxSumCols, &sums[0]);
    kernels.bytes(greatest.data(), 0, 1, kMaxSumCols, &sums[1]);
    kernels.nibbles(nibbles.data(), 0, 1, kMaxSumCols, &sums[2]);
    CHECK(sums == std::vector<int32_t>{-2147483647 - 1, 127 << 24, 15 << 24});
  }
}

}  // namespace
}  // namespace prepack
