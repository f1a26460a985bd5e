// Bytes of words by their place, and rows in another order.

#include "prepack/verify/byte_places.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"

namespace prepack::testing {
namespace {

TEST_CASE("words are split into their bytes and put together again") {
  std::array<uint32_t, 16> words{};
  for (uint32_t i = 0; i < words.size(); ++i) words[i] = 0x03020100 + 0x04040404 * i;
  const FourRegisters bytes = TakeApart(LoadFour(words.data()));
  for (unsigned i = 0; i < words.size(); ++i) {
    for (unsigned place = 0; place < bytes.size(); ++place) {
      CHECK(bytes[place][i] == 4 * i + place);
    }
  }
  std::array<uint32_t, 16> together{};
  const FourRegisters again = PutTogether(bytes);
  std::memcpy(together.data(), again.data(), sizeof again);
  CHECK(together == words);
}

TEST_CASE("up to eight rows of any length are put in any order") {
  SplitMix64 random(1);
  for (uint64_t rows = 1; rows <= kSortedRows; ++rows) {
    for (const uint64_t count : {1U, 15U, 16U, 17U, 32U, 75U}) {
      CAPTURE(rows, count);
      std::vector<int8_t> from(rows * count);
      for (int8_t& byte : from) byte = static_cast<int8_t>(random.Below(256));
      std::vector<uint32_t> places(count);
      for (uint32_t i = 0; i < count; ++i) places[i] = i;
      for (uint64_t i = count - 1; i > 0; --i) std::swap(places[i], places[random.Below(i + 1)]);
      std::vector<uint64_t> words;
      std::vector<int8_t> sorted;
      SortBytes(from.data(), rows, places.data(), count, words, sorted);
      std::vector<int8_t> expected;
      for (uint64_t row = 0; row < rows; ++row) {
        for (const uint32_t place : places) expected.push_back(from[row * count + place]);
      }
      CHECK(sorted == expected);
    }
  }
}

}  // namespace
}  // namespace prepack::testing
