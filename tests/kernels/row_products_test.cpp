// What verify does to every weight: every version gives what plain arithmetic gives.

#include "prepack/kernels/row_products.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "catch.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

TEST_CASE("fields of words become numbers, the lowest first") {
  const std::vector<uint32_t> words = {0x76543210, 0xFEDCBA98, 0x80FF017F};
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> out(24);
    KernelsFor(isa).split_fields(words.data(), 3, 4, 8, out.data());
    for (size_t i = 0; i < 16; ++i) CHECK(out[i] == static_cast<float>(i) - 8);
    CHECK(out[16] == 7);
    CHECK(out[23] == 0);
    KernelsFor(isa).split_fields(words.data(), 3, 8, 0, out.data());
    CHECK(out[0] == 0x10);
    CHECK(out[7] == 0xFE);
    CHECK(out[8] == 0x7F);
    CHECK(out[11] == 0x80);
  }
}

TEST_CASE("steps are scaled, and rounded as the instruction rounds") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> steps = {0.0F,        -0.0F,     1.0F,       -7.0F,      1.00390625F,
                              1.01171875F, 0x1p-126F, 0x1p-130F,  -0x1p-130F, 0x1.FEp127F,
                              0x1.FFp127F, kInfinity, -kInfinity, NAN};
  SplitMix64 random(3);
  for (int i = 0; i < 100; ++i) steps.push_back(static_cast<float>(random.Gaussian()));
  for (const Isa isa : SupportedIsas()) {
    for (const float scale : {1.0F, 0.0131F, 0x1p-125F, -3.5F}) {
      std::vector<float> plain(steps.size());
      std::vector<float> rounded(steps.size());
      KernelsFor(isa).scale_steps(steps.data(), steps.size(), scale, false, plain.data());
      KernelsFor(isa).scale_steps(steps.data(), steps.size(), scale, true, rounded.data());
      for (size_t i = 0; i < steps.size(); ++i) {
        if (std::isnan(steps[i])) {
          CHECK(std::isnan(plain[i]));
          CHECK(std::isnan(rounded[i]));
          continue;
        }
        CHECK(std::bit_cast<uint32_t>(plain[i]) == std::bit_cast<uint32_t>(steps[i] * scale));
        const float expected = RoundByInstruction(DType::kBF16, steps[i] * scale);
        CHECK(std::bit_cast<uint32_t>(rounded[i]) == std::bit_cast<uint32_t>(expected));
      }
    }
  }
}

TEST_CASE("products of rows are those of f64, within f32") {
  SplitMix64 random(5);
  for (const size_t count : {1U, 7U, 8U, 255U, 256U, 1000U}) {
    std::vector<float> w(count);
    std::vector<std::vector<float>> x(11, std::vector<float>(count));
    for (float& value : w) value = static_cast<float>(random.Gaussian());
    std::vector<const float*> rows;
    for (std::vector<float>& row : x) {
      for (float& value : row) value = static_cast<float>(random.Gaussian());
      rows.push_back(row.data());
    }
    for (const Isa isa : SupportedIsas()) {
      std::vector<double> sums(x.size() * kProductLanes, 1);
      KernelsFor(isa).add_row_products(w.data(), count, rows.data(), rows.size(), sums.data());
      for (size_t r = 0; r < x.size(); ++r) {
        double found = -static_cast<double>(kProductLanes);
        double expected = 0;
        for (size_t i = 0; i < kProductLanes; ++i) found += sums[r * kProductLanes + i];
        for (size_t i = 0; i < count; ++i) expected += double{x[r][i]} * double{w[i]};
        CHECK(std::abs(found - expected) < 1e-5);
      }
    }
  }
}

TEST_CASE("nibbles of a strip are scaled channel by channel") {
  NibbleScales scales{};
  SplitMix64 random(7);
  std::vector<uint8_t> codes(3 * 11);
  for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random.Below(256));
  for (const bool tiny : {false, true}) {
    for (const uint32_t flip : {0U, 8U}) {
      scales.flip = flip;
      for (size_t i = 0; i < kStripChannels; ++i) {
        scales.zeros[i] = static_cast<float>(random.Below(16));
        scales.scales[i] = static_cast<float>(random.Gaussian()) * (tiny ? 0x1p-126F : 1.0F);
      }
      for (const Isa isa : SupportedIsas()) {
        std::vector<float> w(3 * kStripChannels);
        KernelsFor(isa).scale_nibbles(codes.data(), 11, 3, scales, true, w.data());
        for (size_t j = 0; j < 3; ++j) {
          for (size_t i = 0; i < kStripChannels; ++i) {
            const auto code = static_cast<uint32_t>(codes[j * 11 + i / 2] >> (i % 2 * 4) & 15);
            const float value =
                (static_cast<float>(code ^ flip) - scales.zeros[i]) * scales.scales[i];
            CHECK(std::bit_cast<uint32_t>(w[j * kStripChannels + i]) ==
                  std::bit_cast<uint32_t>(RoundByInstruction(DType::kBF16, value)));
          }
        }
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
