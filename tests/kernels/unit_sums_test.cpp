// Sums of channels that lie in units, added to what is there.

#include "kernels/unit_sums.h"

#include "catch.h"
#include "kernels/edge_buffer.h"

namespace prepack {
namespace {

constexpr int32_t kBefore = -1000003;

// One sum more than there are channels, which must stay.
std::vector<int32_t> SumsOfUnits(size_t channels) {
  return std::vector<int32_t>(channels + 1, kBefore);
}

TEST_CASE("Channels in units of four bytes are summed on every instruction set") {
  SplitMix64 random(34);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t channels : Sizes{0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 101}) {
      for (const size_t count : Sizes{0, 1, 2, 3, 31, kMaxSumUnits}) {
        CAPTURE(IsaName(isa), channels, count);
        const size_t step = 4 * channels + 12;
        const EdgeBuffer buffer(StridedBytes(count, 4 * channels, step), random);
        const auto* units = reinterpret_cast<const int8_t*>(buffer.data());
        std::vector<int32_t> sums = SumsOfUnits(channels);
        SumUnitsFor(isa)(units, step, count, channels, sums.data());
        std::vector<int32_t> expected = SumsOfUnits(channels);
        for (size_t u = 0; u < count; ++u) {
          for (size_t j = 0; j < 4 * channels; ++j) expected[j / 4] += units[u * step + j];
        }
        REQUIRE(sums == expected);
      }
    }
  }
}

TEST_CASE("As many units of the largest codes as may be summed at a time have sums that fit") {
  constexpr size_t kChannels = 32;
  for (const int value : {-128, 127}) {
    const std::vector<int8_t> units(kMaxSumUnits * 4 * kChannels, static_cast<int8_t>(value));
    for (const Isa isa : SupportedIsas()) {
      CAPTURE(IsaName(isa), value);
      std::vector<int32_t> sums(kChannels);
      SumUnitsFor(isa)(units.data(), 4 * kChannels, kMaxSumUnits, kChannels, sums.data());
      CHECK(sums == std::vector<int32_t>(kChannels, value * 4 * static_cast<int>(kMaxSumUnits)));
    }
  }
}

}  // namespace
}  // namespace prepack
