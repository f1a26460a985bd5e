#include "prepack/convert/gguf/sub_scales.h"

#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "catch.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "test_seed.h"

namespace prepack::testing {
namespace {

using gguf::FindSubScales;
using gguf::SubScales;

// Tries every f16 that there is.
bool HasSubScales(const std::vector<double>& scales, int least, int most) {
  for (uint32_t half = 0; half < 0x7C00; ++half) {
    for (const double super : {double{F16ToF32(static_cast<uint16_t>(half))},
                               -double{F16ToF32(static_cast<uint16_t>(half))}}) {
      bool fits = true;
      for (const double scale : scales) {
        if (scale == 0) continue;
        const double factor = super == 0 ? 0.5 : scale / super;
        fits = fits && factor == std::trunc(factor) && factor * super == scale && factor >= least &&
               factor <= most;
      }
      if (fits) return true;
    }
  }
  return false;
}

void CheckProducts(const std::vector<double>& scales, const SubScales& found, int least, int most) {
  for (size_t i = 0; i < scales.size(); ++i) {
    CHECK(double{F16ToF32(found.super)} * found.factors[i] == scales[i]);
    CHECK(found.factors[i] >= least);
    CHECK(found.factors[i] <= most);
  }
}

TEST_CASE("scales are products of one f16 and small numbers, or not") {
  struct Row {
    std::vector<double> scales;
    bool is_signed;
    bool is_unsigned;
  };
  // 0x1.00ap0 is a prime of 12 bits, one more than f16 has; a ninth of 0x1.803p0 has fewer.
  const std::vector<Row> rows = {
      {.scales = {0.25, 0.25}, .is_signed = true, .is_unsigned = true},
      {.scales = {0.25, -0.25}, .is_signed = true, .is_unsigned = false},
      {.scales = {-0.25, -0.75}, .is_signed = true, .is_unsigned = true},
      {.scales = {0, 0}, .is_signed = true, .is_unsigned = true},
      {.scales = {0, 5, 0}, .is_signed = true, .is_unsigned = true},
      {.scales = {1, 31}, .is_signed = true, .is_unsigned = true},
      {.scales = {1, -32}, .is_signed = true, .is_unsigned = false},
      {.scales = {-1, 32}, .is_signed = true, .is_unsigned = false},
      {.scales = {1, 64}, .is_signed = false, .is_unsigned = false},
      {.scales = {32, 32 * 63.0}, .is_signed = false, .is_unsigned = true},
      {.scales = {0x1.00ap0}, .is_signed = false, .is_unsigned = false},
      {.scales = {0x1.803p0}, .is_signed = true, .is_unsigned = true},
      {.scales = {100000}, .is_signed = true, .is_unsigned = true},
      {.scales = {0x1p-25}, .is_signed = false, .is_unsigned = false},
      {.scales = {0x1p-24, 0x1p-23}, .is_signed = true, .is_unsigned = true},
      {.scales = {1, 0x1p-60}, .is_signed = false, .is_unsigned = false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.scales);
    const std::optional<SubScales> with_sign = FindSubScales(row.scales, -32, 31);
    const std::optional<SubScales> without = FindSubScales(row.scales, 0, 63);
    CHECK(with_sign.has_value() == row.is_signed);
    CHECK(without.has_value() == row.is_unsigned);
    if (with_sign) CheckProducts(row.scales, *with_sign, -32, 31);
    if (without) CheckProducts(row.scales, *without, 0, 63);
  }
}

// Products are found, and what is found where nothing is known agrees with trying everything.
TEST_CASE("sub-scales are found whenever there are some") {
  SplitMix64 random(Seed(46));
  std::set<bool> seen;
  for (int trial = 0; trial < 60; ++trial) {
    const bool products = trial % 2 == 0;
    const double super = F16ToF32(static_cast<uint16_t>(1 + random.Below(0x7BFF)));
    std::vector<double> scales;
    for (int i = 0; i < 4; ++i) {
      const auto factor = static_cast<double>(random.Below(16));
      scales.push_back(products ? super * factor
                                : std::ldexp(static_cast<double>(1 + random.Below(24)), -3));
    }
    CAPTURE(scales);
    const std::optional<SubScales> found = FindSubScales(scales, 0, 15);
    seen.insert(found.has_value());
    if (products) REQUIRE(found.has_value());
    CHECK(found.has_value() == HasSubScales(scales, 0, 15));
    if (found) CheckProducts(scales, *found, 0, 15);
  }
  CHECK(seen.size() == 2);
}

}  // namespace
}  // namespace prepack::testing
