// Rows of bytes in another order.

#include "prepack/kernels/byte_sort.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "catch.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

std::vector<uint32_t> AnyOrder(uint32_t count, SplitMix64& random) {
  std::vector<uint32_t> places(count);
  for (uint32_t i = 0; i < count; ++i) places[i] = i;
  for (uint32_t i = count - 1; i > 0; --i) std::swap(places[i], places[random.Below(i + 1)]);
  return places;
}

TEST_CASE("up to eight rows of any length are put in any order") {
  SplitMix64 random(1);
  for (uint64_t rows = 1; rows <= kSortedRows; ++rows) {
    for (const uint32_t count : {1U, 15U, 31U, 32U, 33U, 64U, 75U, 200U}) {
      std::vector<int8_t> from(rows * count);
      for (int8_t& byte : from) byte = static_cast<int8_t>(random.Below(256));
      const std::vector<uint32_t> places = AnyOrder(count, random);
      std::vector<int8_t> expected;
      for (uint64_t row = 0; row < rows; ++row) {
        for (const uint32_t place : places) expected.push_back(from[row * count + place]);
      }
      for (const Isa isa : SupportedIsas()) {
        CAPTURE(rows, count, IsaName(isa));
        std::vector<uint64_t> words(count);
        std::vector<int8_t> sorted(rows * count);
        KernelsFor(isa).sort_bytes(from.data(), rows, count, places.data(), words.data(),
                                   sorted.data());
        CHECK(sorted == expected);
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
