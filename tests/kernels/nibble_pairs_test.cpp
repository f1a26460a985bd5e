// Pairs of nibbles lie where the closed form says.

#include "prepack/kernels/nibble_pairs.h"

#include <array>
#include <cstring>

#include "catch.h"
#include "kernels/edge_buffer.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

struct Shape {
  size_t cols;  // of a block
  size_t blocks;
  size_t gap;  // bytes between rows
};

void CheckPairs(Isa isa, const Shape& shape, SplitMix64& random) {
  CAPTURE(IsaName(isa), shape.cols, shape.blocks, shape.gap);
  const size_t cols = shape.cols * shape.blocks;
  const size_t row_bytes = cols / 2 + shape.gap;
  const size_t in_bytes = StridedBytes(kPairRows, cols / 2, row_bytes);
  const size_t out_bytes = shape.blocks * PairBlockBytes(shape.cols);
  const EdgeBuffer rows(in_bytes, random);
  const EdgeBuffer pairs(out_bytes);
  KernelsFor(isa).rows_to_pairs(rows.data(), row_bytes, shape.cols, shape.blocks, pairs.data());
  std::vector<uint8_t> expected(out_bytes);
  std::vector<uint8_t> natural = Poisoned(in_bytes);
  for (size_t n = 0; n < kPairRows; ++n) {
    const uint8_t* row = rows.data() + n * row_bytes;
    std::copy_n(row, cols / 2, natural.data() + n * row_bytes);
    for (size_t block = 0; block < shape.blocks; ++block) {
      uint8_t* to = &expected[block * PairBlockBytes(shape.cols)];
      int32_t sum = 0;
      for (size_t k = 0; k < shape.cols; ++k) {
        const unsigned code = NibbleAt(row, block * shape.cols + k);
        const size_t byte = k / 4 * 64 + n / 16 * 32 + n % 8 * 4 + k % 4;
        PutNibbleAt(to + byte, n / 8 % 2, code);
        sum += static_cast<int32_t>(code);
      }
      std::memcpy(to + 16 * shape.cols + n * sizeof sum, &sum, sizeof sum);
    }
  }
  REQUIRE(pairs.Holds(expected));

  const EdgeBuffer back(in_bytes);
  KernelsFor(isa).pairs_to_rows(pairs.data(), shape.cols, shape.blocks, row_bytes, back.data());
  REQUIRE(back.Holds(natural));
}

TEST_CASE("pairs of nibbles and their sums lie where the closed form says, and go back") {
  SplitMix64 random(32);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t cols : Sizes{4, 8, 28, 32, 36, 60, 64, 96, 128, 132, 256, 512}) {
      for (const size_t blocks : Sizes{0, 1, 2, 5}) {
        for (const size_t gap : Sizes{0, 1, 64}) CheckPairs(isa, {cols, blocks, gap}, random);
      }
    }
  }
}

TEST_CASE("long rows that lie far apart become pairs of nibbles, whatever the last run of them") {
  SplitMix64 random(37);
  for (const Isa isa : SupportedIsas()) {
    for (const Shape& shape : {Shape{128, 4, 512}, Shape{128, 9, 64}, Shape{32, 37, 0},
                               Shape{64, 15, 4096}, Shape{512, 3, 1}}) {
      CheckPairs(isa, shape, random);
    }
  }
}

TEST_CASE("sums of the largest codes fit") {
  const std::vector<uint8_t> rows(kPairRows * kMostPairCols / 2, 0xFF);
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    std::vector<uint8_t> pairs(PairBlockBytes(kMostPairCols));
    KernelsFor(isa).rows_to_pairs(rows.data(), kMostPairCols / 2, kMostPairCols, 1, pairs.data());
    std::array<int32_t, kPairRows> sums;
    std::memcpy(sums.data(), &pairs[PairCodeBytes(kMostPairCols)], sizeof sums);
    for (const int32_t sum : sums) CHECK(sum == 15 * 512);
  }
}

}  // namespace
}  // namespace prepack::testing
