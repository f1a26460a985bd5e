// Products of rows with a strip: every version gives the bits that plain loops give.

#include "prepack/kernels/strip_products.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "catch.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

constexpr size_t kRowCounts[] = {0, 1, 2, 3, 5, 6, 7, 11, 12, 13};
constexpr size_t kCounts[] = {0, 1, 2, 7, 128};

std::vector<float> RandomFloats(size_t count, SplitMix64& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Gaussian());
  return values;
}

// Between -2^9 and 2^9.
std::vector<int16_t> RandomInts(size_t count, SplitMix64& random) {
  std::vector<int16_t> values(count);
  for (int16_t& value : values) {
    value = static_cast<int16_t>(static_cast<int>(random.Below(1024)) - 512);
  }
  return values;
}

TEST_CASE("floats are multiplied, rounded and added, k ascending") {
  SplitMix64 random(41);
  for (const size_t rows : kRowCounts) {
    for (const size_t count : kCounts) {
      const std::vector<float> x = RandomFloats(rows * count, random);
      const std::vector<float> w = RandomFloats(count * kStripChannels, random);
      const std::vector<float> before = RandomFloats(rows * kStripChannels, random);
      std::vector<float> expected = before;
      for (size_t i = 0; i < expected.size(); ++i) {
        for (size_t k = 0; k < count; ++k) {
          const volatile float product =  // cannot be fused with the sum
              x[i / kStripChannels * count + k] * w[k * kStripChannels + i % kStripChannels];
          expected[i] += product;
        }
      }
      for (const Isa isa : SupportedIsas()) {
        CAPTURE(IsaName(isa), rows, count);
        std::vector<float> sums = before;
        std::vector<FloatStripRow> strip;
        for (size_t r = 0; r < rows; ++r) {
          strip.push_back({.x = x.data() + r * count, .sums = sums.data() + r * kStripChannels});
        }
        KernelsFor(isa).add_float_products(strip.data(), strip.size(), w.data(), count);
        REQUIRE(sums == expected);
      }
    }
  }
}

TEST_CASE("pairs of integers are multiplied and added exactly") {
  SplitMix64 random(42);
  for (const size_t rows : kRowCounts) {
    for (const size_t count : kCounts) {
      const std::vector<int16_t> x = RandomInts(rows * 2 * count, random);
      const std::vector<int16_t> w = RandomInts(2 * count * kStripChannels, random);
      std::vector<int32_t> expected(rows * kStripChannels, -7);
      for (size_t i = 0; i < expected.size(); ++i) {
        for (size_t k = 0; k < 2 * count; ++k) {
          expected[i] += x[i / kStripChannels * 2 * count + k] *
                         w[(k / 2 * kStripChannels + i % kStripChannels) * 2 + k % 2];
        }
      }
      for (const Isa isa : SupportedIsas()) {
        CAPTURE(IsaName(isa), rows, count);
        std::vector<int32_t> sums(rows * kStripChannels, -7);
        std::vector<PairStripRow> strip;
        for (size_t r = 0; r < rows; ++r) {
          strip.push_back(
              {.x = x.data() + r * 2 * count, .sums = sums.data() + r * kStripChannels});
        }
        KernelsFor(isa).add_pair_products(strip.data(), strip.size(), w.data(), count);
        REQUIRE(sums == expected);
      }
    }
  }
}

TEST_CASE("sums of pairs wrap around") {
  const std::vector<int16_t> x = {256, 256};
  const std::vector<int16_t> w(2 * kStripChannels, 1);
  for (const Isa isa : SupportedIsas()) {
    CAPTURE(IsaName(isa));
    std::vector<int32_t> sums(kStripChannels, std::numeric_limits<int32_t>::max());
    const PairStripRow row{.x = x.data(), .sums = sums.data()};
    KernelsFor(isa).add_pair_products(&row, 1, w.data(), 1);
    const std::vector<int32_t> expected(kStripChannels, std::numeric_limits<int32_t>::min() + 511);
    CHECK(sums == expected);
  }
}

TEST_CASE("fused products are rounded once") {
  SplitMix64 random(43);
  for (const size_t count : std::vector<size_t>{0, 1, 7, 8, 9, 64}) {
    const std::vector<float> a = RandomFloats(count, random);
    const std::vector<float> b = RandomFloats(count, random);
    const std::vector<float> before = RandomFloats(count, random);
    for (const Isa isa : SupportedIsas()) {
      CAPTURE(IsaName(isa), count);
      std::vector<float> sums = before;
      KernelsFor(isa).fuse_products(a.data(), b.data(), count, sums.data());
      for (size_t i = 0; i < count; ++i) REQUIRE(sums[i] == std::fma(a[i], b[i], before[i]));
    }
  }
}

}  // namespace
}  // namespace prepack::testing
