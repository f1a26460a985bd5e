// Pairs of nibbles lie where the closed form says.

#include "kernels/nibble_pairs.h"

#include "catch.h"
#include "kernels/edge_buffer.h"

namespace prepack {
namespace {

void CheckPairs(Isa isa, size_t cols, size_t gap, SplitMix64& random) {
  CAPTURE(IsaName(isa), cols, gap);
  const size_t row_bytes = cols / 2 + gap;
  const size_t in_bytes = StridedBytes(kPairRows, cols / 2, row_bytes);
  const EdgeBuffer rows(in_bytes, random);
  const EdgeBuffer pairs(16 * cols);
  NibblePairsFor(isa).rows_to_pairs(rows.data(), row_bytes, cols, pairs.data());
  std::vector<uint8_t> expected(16 * cols);
  std::vector<uint8_t> natural = Poisoned(in_bytes);
  for (size_t n = 0; n < kPairRows; ++n) {
    const uint8_t* row = rows.data() + n * row_bytes;
    std::copy_n(row, cols / 2, natural.data() + n * row_bytes);
    for (size_t k = 0; k < cols; ++k) {
      const size_t byte = k / 4 * 64 + n / 16 * 32 + n % 8 * 4 + k % 4;
      PutNibbleAt(&expected[byte], n / 8 % 2, NibbleAt(row, k));
    }
  }
  REQUIRE(pairs.Holds(expected));

  const EdgeBuffer back(in_bytes);
  NibblePairsFor(isa).pairs_to_rows(pairs.data(), cols, row_bytes, back.data());
  REQUIRE(back.Holds(natural));
}

TEST_CASE("Pairs of nibbles lie where the closed form says, and go back") {
  SplitMix64 random(32);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t cols : Sizes{0, 4, 8, 28, 32, 36, 60, 64, 68, 124, 128, 132, 1004}) {
      for (const size_t gap : Sizes{0, 1, 64}) CheckPairs(isa, cols, gap, random);
    }
  }
}

}  // namespace
}  // namespace prepack
