// Steps of nibbles lie where the closed form says, with the sums of their codes.

#include "prepack/kernels/nibble_steps.h"

#include <array>

#include "catch.h"
#include "kernels/edge_buffer.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

using RowSums = std::array<int32_t, kNibbleStepRows>;
using ScaledSums = std::array<float, kNibbleStepRows>;

constexpr int32_t kFirstSum = std::numeric_limits<int32_t>::max() - 3;  // sums wrap around it
constexpr float kFirstScaledSum = 1.0F;

struct Steps {
  Steps(const StepGroups& groups, SplitMix64& random)
      : shape(groups),
        cols(shape.groups * shape.steps * kNibbleStepCols),
        rows(kNibbleStepRows * cols / 2, random),
        out_bytes((shape.groups - 1) * shape.stride + shape.steps * kNibbleStepBytes),
        expected(Poisoned(out_bytes)) {
    for (float& scale : scales) scale = static_cast<float>(random.Below(1000)) / 999.0F;
  }

  std::array<uint8_t*, kNibbleStepRows> RowsOf(uint8_t* first) const {
    std::array<uint8_t*, kNibbleStepRows> in;
    for (size_t n = 0; n < in.size(); ++n) in[n] = first + n * cols / 2;
    return in;
  }

  // What all versions must write, one code after the other.
  void Expect() {
    sums.fill(kFirstSum);
    scaled.fill(kFirstScaledSum);
    for (size_t n = 0; n < kNibbleStepRows; ++n) {
      const uint8_t* row = rows.data() + n * cols / 2;
      auto sum = static_cast<uint32_t>(kFirstSum);
      for (size_t k = 0; k < cols; k += kNibbleStepCols) {
        const size_t group = k / kNibbleStepCols / shape.steps;
        const size_t step = group * shape.stride + k / kNibbleStepCols % shape.steps * 128;
        for (size_t half = 0; half < 2; ++half) {
          int32_t half_sum = 0;
          for (size_t i = 0; i < 8; ++i) {
            const unsigned low = NibbleAt(row, k + half * 8 + i);
            const unsigned high = NibbleAt(row, k + half * 8 + i + 16);
            expected[step + half * 64 + n * 8 + i] =
                static_cast<uint8_t>((low | high << 4) ^ 0x88U);
            half_sum += static_cast<int32_t>(low + high) - 16;
          }
          sum += static_cast<uint32_t>(half_sum);
          scaled[n] += static_cast<float>(half_sum) * scales[group * kNibbleStepRows + n];
        }
      }
      sums[n] = static_cast<int32_t>(sum);
    }
  }

  StepGroups shape;
  size_t cols;
  EdgeBuffer rows;
  size_t out_bytes;
  std::vector<uint8_t> expected;
  std::vector<float> scales = std::vector<float>(shape.groups * kNibbleStepRows);
  RowSums sums{};
  ScaledSums scaled{};
};

void CheckSteps(const StepGroups& shape, SplitMix64& random) {
  CAPTURE(shape.steps, shape.groups, shape.stride);
  Steps steps(shape, random);
  steps.Expect();
  const auto rows = steps.RowsOf(steps.rows.data());
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    const KernelTable& kernels = KernelsFor(isa);
    const EdgeBuffer packed(steps.out_bytes);
    RowSums sums;
    sums.fill(kFirstSum);
    kernels.rows_to_steps(rows.data(), shape, packed.data(), sums.data());
    REQUIRE(packed.Holds(steps.expected));
    CHECK(sums == steps.sums);

    const EdgeBuffer with_scales(steps.out_bytes);
    ScaledSums scaled;
    scaled.fill(kFirstScaledSum);
    kernels.rows_to_scaled_steps(rows.data(), shape, steps.scales.data(), with_scales.data(),
                                 scaled.data());
    REQUIRE(with_scales.Holds(steps.expected));
    CHECK(scaled == steps.scaled);

    const EdgeBuffer back(steps.rows.span().size());
    kernels.steps_to_rows(packed.data(), shape, steps.RowsOf(back.data()).data());
    REQUIRE(back.Holds(steps.rows.span()));
  }
}

TEST_CASE("steps of nibbles and their sums lie where the closed form says, and go back") {
  SplitMix64 random(61);
  for (const size_t steps : Sizes{1, 2, 3, 4, 7, 32}) {
    for (const size_t groups : Sizes{1, 2, 5, 64}) {
      for (const size_t gap : Sizes{0, 1, 16}) {
        CheckSteps({.steps = steps, .groups = groups, .stride = steps * kNibbleStepBytes + gap},
                   random);
      }
    }
  }
}

TEST_CASE("eight rows of a step may be one") {
  SplitMix64 random(62);
  const EdgeBuffer row(kNibbleStepRowBytes, random);
  std::array<const uint8_t*, kNibbleStepRows> rows;
  rows.fill(row.data());
  for (const Isa isa : SupportedIsas()) {
    INFO(IsaName(isa));
    const EdgeBuffer packed(kNibbleStepBytes);
    RowSums sums{};
    KernelsFor(isa).rows_to_steps(rows.data(), {}, packed.data(), sums.data());
    for (size_t n = 1; n < kNibbleStepRows; ++n) {
      CHECK(std::equal(packed.data(), packed.data() + 8, packed.data() + 8 * n));
      CHECK(sums[n] == sums[0]);
    }
  }
}

}  // namespace
}  // namespace prepack::testing
