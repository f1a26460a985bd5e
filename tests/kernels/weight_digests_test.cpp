// What verify does to every weight: every version gives what plain arithmetic gives.

#include "prepack/kernels/weight_digests.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "catch.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/strip_codes.h"

namespace prepack::testing {
namespace {

uint32_t ExpectedDigest(std::span<const float> weights, std::span<const uint32_t> factors) {
  uint32_t digest = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    digest += std::bit_cast<uint32_t>(weights[i]) * factors[i];
  }
  return digest;
}

TEST_CASE("digests are of steps that are scaled, and rounded as consumers round") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> steps = {0.0F,        -0.0F,     1.0F,       -7.0F,      1.00390625F,
                              1.01171875F, 0x1p-126F, 0x1p-130F,  -0x1p-130F, 0x1.FEp127F,
                              0x1.FFp127F, kInfinity, -kInfinity, NAN};
  SplitMix64 random(3);
  for (int i = 0; i < 100; ++i) steps.push_back(static_cast<float>(random.Gaussian()));
  std::vector<uint32_t> factors(steps.size());
  for (uint32_t& factor : factors) factor = static_cast<uint32_t>(random.Next());
  for (const float scale : {1.0F, 0.0131F, 0x1p-125F, -3.5F}) {
    for (size_t i = 0; i < steps.size(); ++i) {  // one by one, so that none hides another
      const std::span one = std::span(steps).subspan(i, 1);
      const std::span factor = std::span(factors).subspan(i, 1);
      const float product = steps[i] * scale;
      const std::vector<float> plain = {product};
      const std::vector<float> by_instruction = {RoundByInstruction(DType::kBF16, product)};
      const std::vector<float> nearest = {RoundTo(DType::kBF16, product)};
      for (const Isa isa : SupportedIsas()) {
        const auto digest = [&](Bf16Rounding rounding) {
          return KernelsFor(isa).digest_scaled(one.data(), 1, scale, rounding, factor.data());
        };
        CHECK(digest(Bf16Rounding::kNone) == ExpectedDigest(plain, factor));
        if (std::isnan(product)) continue;  // any bits of it
        CHECK(digest(Bf16Rounding::kByInstruction) == ExpectedDigest(by_instruction, factor));
        CHECK(digest(Bf16Rounding::kNearest) == ExpectedDigest(nearest, factor));
        CHECK(digest(Bf16Rounding::kNearestOfFinite) == ExpectedDigest(nearest, factor));
      }
    }
    std::vector<float> products;
    for (const float step : steps) products.push_back(step * scale);
    for (const Isa isa : SupportedIsas()) {
      CHECK(KernelsFor(isa).digest_scaled(steps.data(), steps.size(), scale, Bf16Rounding::kNone,
                                          factors.data()) == ExpectedDigest(products, factors));
    }
  }
}

TEST_CASE("digests of whole numbers are those of their integers") {
  SplitMix64 random(5);
  std::vector<float> steps;
  std::vector<int16_t> factors;
  uint32_t expected = 0;
  for (int i = 0; i < 77; ++i) {
    const auto step = static_cast<int32_t>(random.Below(512)) - 256;
    const auto factor = static_cast<int16_t>(random.Next());
    steps.push_back(static_cast<float>(step));
    factors.push_back(factor);
    expected += static_cast<uint32_t>(step * int32_t{factor});
  }
  for (const Isa isa : SupportedIsas()) {
    CHECK(KernelsFor(isa).digest_steps(steps.data(), steps.size(), factors.data()) == expected);
  }
}

TEST_CASE("digests of a strip are those of its columns") {
  SplitMix64 random(9);
  constexpr size_t kCount = 33;
  std::vector<float> w(kCount * kStripChannels);
  std::vector<uint32_t> factors(kCount);
  for (float& weight : w) weight = static_cast<float>(random.Gaussian());
  for (uint32_t& factor : factors) factor = static_cast<uint32_t>(random.Next());
  for (const Isa isa : SupportedIsas()) {
    std::vector<uint32_t> digests(kStripChannels, 5);
    KernelsFor(isa).add_strip_digests(w.data(), kCount, factors.data(), digests.data());
    for (size_t i = 0; i < kStripChannels; ++i) {
      std::vector<float> column;
      for (size_t j = 0; j < kCount; ++j) column.push_back(w[j * kStripChannels + i]);
      CHECK(digests[i] == 5 + ExpectedDigest(column, factors));
    }
  }
}

// What a code of output channel i becomes.
float Decoded(const NibbleScales& scales, size_t i, uint32_t code) {
  const float value = (static_cast<float>(code ^ scales.flip) - scales.zeros[i]) * scales.scales[i];
  return scales.to_bf16 ? RoundByInstruction(DType::kBF16, value) : value;
}

TEST_CASE("nibbles of a strip are scaled channel by channel") {
  SplitMix64 random(7);
  std::vector<uint8_t> codes(kStripChannels * 11);
  for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random.Below(256));
  for (const int kind : {0, 1, 2, 3, 4, 5, 6, 7}) {
    NibbleScales scales{};
    scales.flip = kind % 2 == 0 ? 0U : 8U;
    scales.to_bf16 = kind / 2 % 2 == 0;
    for (size_t i = 0; i < kStripChannels; ++i) {
      scales.zeros[i] = static_cast<float>(random.Below(16));
      scales.scales[i] = static_cast<float>(random.Gaussian()) * (kind < 4 ? 0x1p-126F : 1.0F);
    }
    for (const Isa isa : SupportedIsas()) {
      std::vector<float> columns(3 * kStripChannels);
      KernelsFor(isa).scale_nibbles(codes.data(), 11, 3, scales, columns.data());
      std::vector<float> lines(16 * kStripChannels);
      KernelsFor(isa).scale_nibble_lines(codes.data(), 11, 2, scales, lines.data());
      for (size_t i = 0; i < kStripChannels; ++i) {
        for (size_t j = 0; j < 3; ++j) {
          const auto code = static_cast<uint32_t>(codes[j * 11 + i / 2] >> (i % 2 * 4) & 15);
          CHECK(std::bit_cast<uint32_t>(columns[j * kStripChannels + i]) ==
                std::bit_cast<uint32_t>(Decoded(scales, i, code)));
        }
        for (size_t j = 0; j < 16; ++j) {
          const auto code = static_cast<uint32_t>(codes[i * 11 + j / 2] >> (j % 2 * 4) & 15);
          CHECK(std::bit_cast<uint32_t>(lines[j * kStripChannels + i]) ==
                std::bit_cast<uint32_t>(Decoded(scales, i, code)));
        }
      }
    }
  }
}

TEST_CASE("digests of nibbles are those of the weights that they stand for") {
  SplitMix64 random(11);
  constexpr size_t kCount = 200;  // more than are digested at a time, and a rest
  constexpr size_t kStride = kCount / 2 + 3;
  std::vector<uint8_t> codes(kCount * kStride);
  for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random.Below(256));
  std::vector<int16_t> factors(kCount);
  for (int16_t& factor : factors) factor = static_cast<int16_t>(random.Next());
  for (const uint32_t flip : {0U, 8U}) {
    NibbleScales scales{};
    scales.flip = flip;
    scales.to_bf16 = true;
    for (size_t i = 0; i < kStripChannels; ++i) {
      scales.zeros[i] = static_cast<float>(random.Below(16));
      scales.scales[i] = static_cast<float>(random.Gaussian()) * (i < 2 ? 0x1p-126F : 1.0F);
    }
    for (const Isa isa : SupportedIsas()) {
      std::vector<uint32_t> columns(kStripChannels, 3);
      KernelsFor(isa).digest_nibbles(codes.data(), kStride, kCount, scales, factors.data(),
                                     columns.data());
      std::vector<uint32_t> lines(kStripChannels, 4);
      KernelsFor(isa).digest_nibble_lines(codes.data(), kStride, kCount / 8, scales, factors.data(),
                                          lines.data());
      for (size_t i = 0; i < kStripChannels; ++i) {
        uint32_t of_column = 3;
        uint32_t of_line = 4;
        for (size_t j = 0; j < kCount; ++j) {
          const auto column = static_cast<uint32_t>(codes[j * kStride + i / 2] >> (i % 2 * 4) & 15);
          const auto line = static_cast<uint32_t>(codes[i * kStride + j / 2] >> (j % 2 * 4) & 15);
          const auto factor = static_cast<uint32_t>(factors[j]);
          of_column += std::bit_cast<uint32_t>(Decoded(scales, i, column)) * factor;
          of_line += std::bit_cast<uint32_t>(Decoded(scales, i, line)) * factor;
        }
        CHECK(columns[i] == of_column);
        CHECK(lines[i] == of_line);
      }
    }
  }
}

TEST_CASE("digests of small steps are those of the same steps as floats") {
  SplitMix64 random(13);
  for (const int range : {1, 16, 17, 31, 256}) {
    for (const size_t count : {size_t{4}, size_t{128}, size_t{150}, size_t{512}}) {
      std::vector<int8_t> steps(count);
      std::vector<float> floats;
      std::vector<int16_t> factors(count);
      std::vector<uint32_t> wide;
      for (size_t i = 0; i < count; ++i) {
        steps[i] = static_cast<int8_t>(
            static_cast<int>(random.Below(static_cast<uint64_t>(range))) - range / 2);
        floats.push_back(static_cast<float>(steps[i]));
        factors[i] = static_cast<int16_t>(random.Next());
        wide.push_back(static_cast<uint32_t>(random.Next() << 16) |
                       static_cast<uint16_t>(factors[i]));
      }
      for (const Isa isa : SupportedIsas()) {
        const KernelTable& kernels = KernelsFor(isa);
        CHECK(kernels.digest_small_steps(steps.data(), count, factors.data()) ==
              kernels.digest_steps(floats.data(), count, factors.data()));
        for (const Bf16Rounding rounding : {Bf16Rounding::kByInstruction, Bf16Rounding::kNearest,
                                            Bf16Rounding::kNearestOfFinite}) {
          const std::vector<float> scales = {0.0131F, -1.7F, 0x1.3p-124F, 0x1p-133F};
          const size_t group = count / scales.size();
          uint32_t expected = 0;
          for (size_t i = 0; i < scales.size(); ++i) {
            expected += kernels.digest_scaled(&floats[i * group], group, scales[i], rounding,
                                              &wide[i * group]);
          }
          CHECK(kernels.digest_small_scaled(steps.data(), group, scales.data(), scales.size(),
                                            rounding, factors.data()) == expected);
        }
      }
    }
  }
}

TEST_CASE("fields of bytes become small numbers, the lowest first") {
  std::vector<uint8_t> bytes(70);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37);
  for (const Isa isa : SupportedIsas()) {
    std::vector<int8_t> nibbles(2 * bytes.size());
    KernelsFor(isa).split_small_fields(bytes.data(), bytes.size(), 4, 8, nibbles.data());
    std::vector<int8_t> whole(bytes.size());
    KernelsFor(isa).split_small_fields(bytes.data(), bytes.size(), 8, 128, whole.data());
    for (size_t i = 0; i < bytes.size(); ++i) {
      CHECK(nibbles[2 * i] == (bytes[i] & 15) - 8);
      CHECK(nibbles[2 * i + 1] == (bytes[i] >> 4) - 8);
      CHECK(whole[i] == bytes[i] - 128);
    }
  }
}

TEST_CASE("digests of fours of bytes are those of their output channels") {
  SplitMix64 random(15);
  constexpr size_t kFours = 9;
  constexpr size_t kStride = 4 * kStripChannels + 3;
  std::vector<int8_t> quads(kFours * kStride);
  for (int8_t& code : quads) code = static_cast<int8_t>(random.Next());
  std::vector<int16_t> factors(4 * kFours);
  for (int16_t& factor : factors) factor = static_cast<int16_t>(random.Next());
  for (const Isa isa : SupportedIsas()) {
    std::vector<uint32_t> digests(kStripChannels, 5);
    KernelsFor(isa).digest_quads(quads.data(), kStride, kFours, factors.data(), digests.data());
    for (size_t i = 0; i < kStripChannels; ++i) {
      uint32_t expected = 5;
      for (size_t k = 0; k < factors.size(); ++k) {
        const int32_t code = quads[k / 4 * kStride + 4 * i + k % 4];
        expected += static_cast<uint32_t>(code * factors[k]);
      }
      CHECK(digests[i] == expected);
    }
  }
}

TEST_CASE("digests of bytes are those of the weights that they stand for") {
  SplitMix64 random(16);
  ByteWeights weights;
  for (uint16_t& upper : weights.upper) upper = static_cast<uint16_t>(random.Next());
  constexpr size_t kStride = 2 * kBytePairChannels + 3;
  for (const size_t count : {size_t{1}, size_t{32}, size_t{77}, size_t{512}}) {
    std::vector<uint8_t> codes(count * kStride);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random.Next());
    std::vector<int16_t> factors(2 * count);
    for (int16_t& factor : factors) factor = static_cast<int16_t>(random.Next());
    const auto digest_of = [&](uint8_t code, size_t k) {
      return (uint32_t{weights.upper[code]} << 16) *
             static_cast<uint32_t>(static_cast<int32_t>(factors[k]));
    };
    for (const Isa isa : SupportedIsas()) {
      const KernelTable& kernels = KernelsFor(isa);
      uint32_t expected = 0;
      for (size_t k = 0; k < count; ++k) expected += digest_of(codes[k], k);
      CHECK(kernels.digest_bytes(codes.data(), count, weights, factors.data()) == expected);
      std::vector<uint32_t> digests(kBytePairChannels, 5);
      kernels.digest_byte_pairs(codes.data(), kStride, count, weights, factors.data(),
                                digests.data());
      for (size_t i = 0; i < kBytePairChannels; ++i) {
        expected = 5;
        for (size_t k = 0; k < 2 * count; ++k) {
          expected += digest_of(codes[k / 2 * kStride + 2 * i + k % 2], k);
        }
        CHECK(digests[i] == expected);
      }
    }
  }
}

TEST_CASE("fours of bytes become pairs") {
  std::vector<int8_t> quads(70 + 64);
  for (size_t i = 0; i < quads.size(); ++i) quads[i] = static_cast<int8_t>(i * 37);
  for (const Isa isa : SupportedIsas()) {
    std::vector<int16_t> w(2 * 2 * 2 * kStripChannels);
    KernelsFor(isa).widen_quads(quads.data(), 70, 2, w.data());
    for (size_t j = 0; j < 2; ++j) {
      for (size_t i = 0; i < kStripChannels; ++i) {
        for (size_t k = 0; k < 4; ++k) {
          CHECK(w[((2 * j + k / 2) * kStripChannels + i) * 2 + k % 2] == quads[j * 70 + 4 * i + k]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
