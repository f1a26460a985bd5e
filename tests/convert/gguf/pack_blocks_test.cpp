#include "prepack/convert/gguf/pack_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "catch.h"
#include "convert/gguf/random_row.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"
#include "prepack/gguf/blocks.h"
#include "status_matchers.h"
#include "test_seed.h"

namespace prepack::testing {
namespace {

using gguf::GgmlType;
using enum gguf::GgmlType;

Scheme Fp4Scheme(uint64_t group) {
  return {.code = CodeType::kF4E2M1,
          .bits = 4,
          .granularity = Granularity::kGroup,
          .group_size = group};
}

void CheckHolds(GgmlType type, const Scheme& scheme, uint64_t k, SplitMix64& random) {
  INFO(gguf::InfoOf(type).name << " " << DescribeScheme(scheme) << ", K = " << k);
  REQUIRE(gguf::WhyNotHeld(type, scheme, k) == "");
  const RandomRow row(scheme, k, random);
  const gguf::RowPacker packer(type, scheme, k, {});
  std::vector<std::byte> packed(packer.row_bytes());
  gguf::Rounded rounded;
  RequireOk(packer.Pack(row.row(), packed.data(), rounded));
  CHECK_FALSE(rounded.any());
  std::vector<float> weights(k);
  gguf::Dequantize(type, packed, weights);
  for (uint64_t i = 0; i < k; ++i) {
    INFO("input channel " << i);
    REQUIRE(weights[i] == row.Weight(scheme, i));
  }
}

TEST_CASE("blocks hold every weight of what is packed into them") {
  SplitMix64 random(Seed(46));
  for (const uint64_t k : {64U, 128U, 320U, 1024U}) {
    for (const uint64_t group : {uint64_t{32}, uint64_t{64}, k}) {
      for (const uint32_t bits : {2U, 3U, 4U}) {
        CheckHolds(kQ4_0, IntegerScheme(CodeType::kU4, bits, group, true), k, random);
      }
      CheckHolds(kQ4_1, IntegerScheme(CodeType::kU4, 4, group, false), k, random);
      CheckHolds(kQ5_0, IntegerScheme(CodeType::kU4, 4, group, false), k, random);
      CheckHolds(kQ5_0, IntegerScheme(CodeType::kU8, 5, group, true), k, random);
      CheckHolds(kQ5_1, IntegerScheme(CodeType::kU8, 5, group, false), k, random);
      CheckHolds(kQ8_0, IntegerScheme(CodeType::kU8, 8, group, true), k, random);
      CheckHolds(kQ8_0, IntegerScheme(CodeType::kU8, 7, group, false), k, random);
      CheckHolds(kQ8_0, IntegerScheme(CodeType::kS8, 8, group, true), k, random);
      CheckHolds(kQ8_0, IntegerScheme(CodeType::kU4, 4, group, false), k, random);
    }
    CheckHolds(kMXFP4, Fp4Scheme(32), k, random);
    CheckHolds(kNVFP4, Fp4Scheme(16), k, random);
  }
}

TEST_CASE("what a type does not hold, and why") {
  const auto why = [](GgmlType type, const Scheme& scheme, uint64_t k) {
    return gguf::WhyNotHeld(type, scheme, k);
  };
  CHECK(why(kQ4_0, IntegerScheme(CodeType::kU4, 4, 32, false), 64) ==
        "the weights are integers from -15 to 15, and Q4_0 holds -8 to 7");
  CHECK(why(kQ8_0, IntegerScheme(CodeType::kU8, 8, 32, false), 64) ==
        "the weights are integers from -255 to 255, and Q8_0 holds -128 to 127");
  CHECK(why(kQ4_0, IntegerScheme(CodeType::kU4, 4, 16, true), 64) ==
        "groups of 16 are no multiple of 32, those of Q4_0");
  CHECK(why(kQ6_K, IntegerScheme(CodeType::kU8, 6, 24, true), 768) ==
        "groups of 24 are no multiple of 16, those of Q6_K");
  CHECK(why(kQ3_K, IntegerScheme(CodeType::kU4, 3, 128, true), 384) ==
        "K = 384 is no multiple of 256, the block of Q3_K");
  CHECK(why(kQ6_K, IntegerScheme(CodeType::kU8, 6, 128, false), 256) ==
        "the weights are integers from -63 to 63, and Q6_K holds -32 to 31");
  CHECK(why(kQ4_0, IntegerScheme(CodeType::kU4, 4, 48, true), 48) ==
        "K = 48 is no multiple of 32, the block of Q4_0");
  CHECK(why(kQ5_1, IntegerScheme(CodeType::kS8, 5, 32, true), 64) ==
        "Q5_1 has a minimum, which signed codes lack");
  CHECK(why(kNVFP4, Fp4Scheme(32), 64) == "NVFP4 holds FP4 in groups of 16");
  CHECK(why(kNVFP4, Fp4Scheme(16), 96) == "K = 96 is no multiple of 64, the block of NVFP4");
  CHECK(why(kQ8_0, Fp4Scheme(32), 64) == "Q8_0 holds integers");
  CHECK(why(kIQ4_XS, IntegerScheme(CodeType::kU8, 4, 32, true), 256) ==
        "prepack does not pack IQ4_XS");
}

// 1/3 has no exact number in f16; 0.5 has one.
TEST_CASE("what is rounded is counted, once for each group") {
  const Scheme scheme = IntegerScheme(CodeType::kU4, 4, 64, false);
  SplitMix64 random(Seed(46));
  RandomRow row(scheme, 128, random);
  row.scales = {1.0F / 3, 0.5F};
  row.zero_points = {0, 3};
  std::vector<std::byte> packed(256);
  gguf::Rounded rounded;
  RequireOk(gguf::RowPacker(kQ4_1, scheme, 128, {}).Pack(row.row(), packed.data(), rounded));
  CHECK(rounded.scales == 1);
  CHECK(rounded.minima == 0);
  row.zero_points = {1, 3};
  RequireOk(gguf::RowPacker(kQ4_1, scheme, 128, {}).Pack(row.row(), packed.data(), rounded));
  CHECK(rounded.scales == 2);
  CHECK(rounded.minima == 1);
}

// Normal and subnormal ones, zeros, ties and numbers just below what rounds to infinity, mixed in
// fours and apart, in more groups than are packed together.
TEST_CASE("every scale and minimum becomes the nearest f16") {
  constexpr uint64_t kGroups = 133;
  const Scheme scheme = IntegerScheme(CodeType::kU4, 4, 32, false);
  SplitMix64 random(Seed(47));
  for (int trial = 0; trial < 50; ++trial) {
    RandomRow row(scheme, 32 * kGroups, random);
    const uint64_t odd_ones = random.Below(8);
    for (uint64_t g = 0; g < kGroups; ++g) {
      const bool odd = random.Below(8) < odd_ones;
      const uint64_t exponent = odd ? 96 + random.Below(43) : 113 + random.Below(20);
      const uint64_t lost = random.Below(3) == 0 ? random.Next() & 0x1FFFU : 0x1000 & random.Next();
      const auto bits = static_cast<uint32_t>(exponent << 23 | (random.Next() & 0x7FE000U) | lost);
      row.scales[g] = random.Below(16) == 0 ? 0 : std::bit_cast<float>(bits);
    }
    row.scales.front() = std::nextafter(65520.0F, 0.0F);
    row.zero_points.front() = 1;
    gguf::Rounded rounded;
    const gguf::RowPacker packer(kQ4_1, scheme, 32 * kGroups, {});
    std::vector<std::byte> packed(packer.row_bytes());
    RequireOk(packer.Pack(row.row(), packed.data(), rounded));
    uint64_t wrong_scales = 0;
    uint64_t wrong_minima = 0;
    for (uint64_t g = 0; g < kGroups; ++g) {
      const float minimum = -(static_cast<float>(row.zero_points[g]) * row.scales[g]);
      std::array<uint16_t, 2> stored = {};
      std::memcpy(stored.data(), &packed[g * gguf::InfoOf(kQ4_1).bytes], sizeof stored);
      REQUIRE(stored == std::array{F32ToF16(row.scales[g]), F32ToF16(minimum)});
      wrong_scales += F16ToF32(stored[0]) != row.scales[g] ? 1U : 0U;
      wrong_minima += F16ToF32(stored[1]) != minimum ? 1U : 0U;
    }
    CHECK(rounded.scales == wrong_scales);
    CHECK(rounded.minima == wrong_minima);
  }
}

TEST_CASE("scales that a type has no number for are refused") {
  SplitMix64 random(Seed(46));
  std::vector<std::byte> packed(256);
  gguf::Rounded rounded;
  const auto pack = [&](GgmlType type, const Scheme& scheme, float scale) {
    RandomRow row(scheme, 64, random);
    std::ranges::fill(row.scales, scale);
    return gguf::RowPacker(type, scheme, 64, {}).Pack(row.row(), packed.data(), rounded);
  };
  const Scheme w4 = IntegerScheme(CodeType::kU4, 4, 32, true);
  CheckError(pack(kQ4_0, w4, 70000), ErrorKind::kUnsupported, "f16 has no number for a scale");
  CheckError(pack(kMXFP4, Fp4Scheme(32), 3), ErrorKind::kUnsupported, "MXFP4 has no number");
  CheckError(pack(kNVFP4, Fp4Scheme(16), 0.3F), ErrorKind::kUnsupported, "NVFP4 has no number");
  CheckError(pack(kNVFP4, Fp4Scheme(16), -1), ErrorKind::kUnsupported, "NVFP4 has no number");
  RequireOk(pack(kNVFP4, Fp4Scheme(16), 0.5F));
}

TEST_CASE("every number of unsigned FP8 is found again below a global scale") {
  constexpr uint8_t kNumbers = 0x7F;
  const Scheme scheme = Fp4Scheme(16);
  SplitMix64 random(Seed(46));
  for (const float value : {1.0F, 3.0F, 0.0123F, 1.0F / 7, 2688.0F / 448}) {
    for (const bool divides : {false, true}) {
      INFO("global scale " << value << (divides ? ", divides" : ""));
      const GlobalScale global{.value = value, .divides = divides};
      RandomRow row(scheme, 16 * (kNumbers + 1), random);
      for (uint8_t bits = 0; bits < kNumbers; ++bits) {
        row.scales[bits] = global.Apply(F8E4M3ToF32(bits));
      }
      row.scales.back() = row.scales.front();
      gguf::Rounded rounded;
      const gguf::RowPacker packer(kNVFP4, scheme, 16 * (kNumbers + 1), global);
      std::vector<std::byte> packed(packer.row_bytes());
      RequireOk(packer.Pack(row.row(), packed.data(), rounded));
      for (uint8_t bits = 0; bits < kNumbers; ++bits) {
        CHECK(packed[bits / 4 * 36 + bits % 4] == std::byte{bits});
      }
      const float between = global.Apply(F8E4M3ToF32(0x40) * 1.01F);
      row.scales[0x40] = between;
      CheckError(packer.Pack(row.row(), packed.data(), rounded), ErrorKind::kUnsupported,
                 "NVFP4 has no number");
    }
  }
}

TEST_CASE("scales of NVFP4 are stored below the global one") {
  const Scheme scheme = Fp4Scheme(16);
  const GlobalScale global{.value = 3.0F, .divides = true};
  SplitMix64 random(Seed(46));
  RandomRow row(scheme, 64, random);
  row.scales = {448.0F / 3, 1.0F / 3, 0, 0.001953125F / 3};
  std::vector<std::byte> packed(36);
  gguf::Rounded rounded;
  RequireOk(gguf::RowPacker(kNVFP4, scheme, 64, global).Pack(row.row(), packed.data(), rounded));
  CHECK(packed[0] == std::byte{0x7E});
  CHECK(packed[1] == std::byte{0x38});
  CHECK(packed[2] == std::byte{0});
  CHECK(packed[3] == std::byte{1});
}

}  // namespace
}  // namespace prepack::testing
