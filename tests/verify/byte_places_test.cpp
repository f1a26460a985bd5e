// Bytes of words by their place.

#include "prepack/verify/byte_places.h"

#include <array>
#include <cstdint>

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("words are split into their bytes") {
  std::array<uint32_t, 16> words{};
  for (uint32_t i = 0; i < words.size(); ++i) words[i] = 0x03020100 + 0x04040404 * i;
  const FourRegisters bytes = TakeApart(LoadFour(words.data()));
  for (unsigned i = 0; i < words.size(); ++i) {
    for (unsigned place = 0; place < bytes.size(); ++place) {
      CHECK(bytes[place][i] == 4 * i + place);
    }
  }
}

}  // namespace
}  // namespace prepack::testing
