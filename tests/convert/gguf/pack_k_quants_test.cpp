#include "prepack/convert/gguf/pack_k_quants.h"

#include <vector>

#include "catch.h"
#include "convert/gguf/random_row.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/convert/gguf/integers.h"
#include "prepack/gguf/blocks.h"
#include "status_matchers.h"
#include "test_seed.h"

namespace prepack::testing {
namespace {

using gguf::GgmlType;
using enum gguf::GgmlType;

// Modules of integers that a type has, and the largest factor of their scales under one f16 for
// which the type still has their minima.
struct Kind {
  GgmlType type;
  CodeType code;
  uint32_t bits;
  bool symmetric;
  int most;
};

constexpr Kind kKinds[] = {
    {kQ2_K, CodeType::kU4, 2, true, 7},    {kQ2_K, CodeType::kU4, 2, false, 5},
    {kQ2_K, CodeType::kU4, 1, true, 15},   {kQ3_K, CodeType::kU4, 3, true, 31},
    {kQ3_K, CodeType::kU4, 2, false, 31},  {kQ4_K, CodeType::kU4, 4, false, 4},
    {kQ4_K, CodeType::kU4, 3, false, 9},   {kQ5_K, CodeType::kU8, 5, false, 2},
    {kQ5_K, CodeType::kU8, 5, true, 3},    {kQ6_K, CodeType::kU8, 6, true, 127},
    {kQ6_K, CodeType::kS8, 6, true, 127},  {kQ6_K, CodeType::kU4, 4, false, 127},
    {kQ6_K, CodeType::kU8, 5, false, 127}, {kQ6_K, CodeType::kU4, 4, true, 127},
};

// A row whose scales are products of one f16 for each superblock.
RandomRow RowOf(const Kind& kind, const Scheme& scheme, uint64_t k, SplitMix64& random) {
  RandomRow row(scheme, k, random);
  const bool has_sign = !gguf::HasMinima(kind.type);
  float super = 0;
  for (size_t g = 0; g < row.scales.size(); ++g) {
    if (g * scheme.group_size % 256 == 0) {
      super = F16ToF32(static_cast<uint16_t>(0x0400 + random.Below(0x6000)));
      if (random.Below(2) == 0) super = -super;
    }
    auto factor = static_cast<int>(random.Below(static_cast<uint64_t>(kind.most) + 1));
    if (has_sign && random.Below(2) == 0) factor = -factor;
    row.scales[g] = super * static_cast<float>(factor);
    if (!scheme.symmetric) {
      row.zero_points[g] = static_cast<uint8_t>(random.Below(uint64_t{1} << scheme.bits));
    }
  }
  return row;
}

TEST_CASE("superblocks hold every weight of what is packed into them") {
  SplitMix64 random(Seed(46));
  for (const Kind& kind : kKinds) {
    const uint64_t smallest = gguf::RangeOf(kind.type)->group;
    for (const uint64_t k : {256U, 768U}) {
      for (const uint64_t group : {smallest, uint64_t{48}, uint64_t{128}, uint64_t{256}, k}) {
        if (k % group != 0 || group % smallest != 0) continue;
        const Scheme scheme = IntegerScheme(kind.code, kind.bits, group, kind.symmetric);
        INFO(gguf::InfoOf(kind.type).name << " " << DescribeScheme(scheme) << ", K = " << k);
        REQUIRE(gguf::WhyNotHeld(kind.type, scheme, k) == "");
        const RandomRow row = RowOf(kind, scheme, k, random);
        const gguf::RowPacker packer(kind.type, scheme, k, {});
        std::vector<std::byte> packed(packer.row_bytes());
        gguf::Rounded rounded;
        RequireOk(packer.Pack(row.row(), packed.data(), rounded));
        CHECK_FALSE(rounded.any());
        std::vector<float> weights(k);
        gguf::Dequantize(kind.type, packed, weights);
        for (uint64_t i = 0; i < k; ++i) {
          INFO("input channel " << i);
          REQUIRE(weights[i] == row.Weight(scheme, i));
        }
      }
    }
  }
}

TEST_CASE("rows whose scales are no multiples of one f16 are not packed") {
  SplitMix64 random(Seed(46));
  for (const Kind& kind : kKinds) {
    const Scheme scheme = IntegerScheme(kind.code, kind.bits, 128, kind.symmetric);
    INFO(gguf::InfoOf(kind.type).name << " " << DescribeScheme(scheme));
    const gguf::IntegerRange& range = *gguf::RangeOf(kind.type);
    RandomRow row = RowOf(kind, scheme, 768, random);
    CHECK_FALSE(gguf::FirstNotHeld(range, scheme, 768, row.row()).has_value());
    row.scales[2] = 1;
    row.scales[3] = 1.0F / 128 + 1;  // the factors would be 128 and 129
    CHECK(gguf::FirstNotHeld(range, scheme, 768, row.row()) == 1);
    std::vector<std::byte> packed(3 * gguf::InfoOf(kind.type).bytes);
    CHECK_FALSE(gguf::PackSuperblocks(range, scheme, 768, row.row(), packed.data()));
    gguf::Rounded rounded;
    CheckError(gguf::RowPacker(kind.type, scheme, 768, {}).Pack(row.row(), packed.data(), rounded),
               ErrorKind::kUnsupported, "no multiples of one f16");
  }
}

// Zero points count, too: 15 times 15 is no number of six bits.
TEST_CASE("minima have to be multiples of one f16") {
  const Scheme scheme = IntegerScheme(CodeType::kU4, 4, 128, false);
  SplitMix64 random(Seed(46));
  RandomRow row(scheme, 256, random);
  row.scales = {15, 1};
  row.zero_points = {15, 1};
  CHECK(gguf::FirstNotHeld(*gguf::RangeOf(kQ4_K), scheme, 256, row.row()) == 0);
  row.zero_points = {4, 3};
  CHECK_FALSE(gguf::FirstNotHeld(*gguf::RangeOf(kQ4_K), scheme, 256, row.row()).has_value());
}

}  // namespace
}  // namespace prepack::testing
