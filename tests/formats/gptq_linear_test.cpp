// Random modules, packed naively, read whole and in odd panels.

#include <vector>

#include "formats/gptq_example.h"
#include "formats/read_helpers.h"
#include "prepack/base/float_convert.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

void CheckPanel(const QuantizedLinear& linear, const GptqExample& x, const PanelRange& range) {
  CAPTURE(range.n0, range.rows, range.k0, range.cols);
  const std::vector<std::byte> panel = Codes(linear, range);
  const SharedOrder order = Value(linear.KOrder());
  size_t wrong = 0;
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t col = 0; col < range.cols; ++col) {
      const uint64_t j = range.k0 + col;
      const uint64_t k = order->empty() ? j : (*order)[j];
      const uint8_t code = PanelCode(linear.scheme().code, panel, range.cols, row, col);
      wrong += code != x.codes[k * x.n + range.n0 + row] ? 1 : 0;
    }
    if (IsNibble(linear.scheme().code) && range.cols % 2 != 0) {
      const size_t row_bytes = PanelRowBytes(linear.scheme().code, range.cols);
      wrong += std::to_integer<unsigned>(panel[(row + 1) * row_bytes - 1]) > 15 ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

void CheckColumns(const QuantizedLinear& linear, const GptqExample& x, const PanelRange& range) {
  CAPTURE(range.n0, range.rows, range.k0, range.cols);
  REQUIRE(linear.HasColumns(range));
  std::vector<std::byte> columns(range.cols * range.rows / 2, std::byte{0xA5});
  RequireOk(linear.ReadColumns(range, columns));
  const SharedOrder order = Value(linear.KOrder());
  size_t wrong = 0;
  for (uint64_t col = 0; col < range.cols; ++col) {
    const uint64_t j = range.k0 + col;
    const uint64_t k = order->empty() ? j : (*order)[j];
    for (uint64_t row = 0; row < range.rows; ++row) {
      const auto two = std::to_integer<unsigned>(columns[(col * range.rows + row) / 2]);
      wrong += (two >> row % 2 * 4 & 15U) != x.codes[k * x.n + range.n0 + row] ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

void CheckExample(const GptqExample& x, uint64_t seed) {
  CAPTURE(x.n, x.k, x.bits, x.group_size, x.symmetric, x.stored_zeros, x.planar, seed);
  TempFolder temp;
  MakeGptq(x).Write(temp.path());
  const OpenedModel opened = MustOpen(temp.path());
  const QuantizedLinear& linear = opened.Module(kGptqModule);
  REQUIRE(linear.n() == x.n);
  REQUIRE(linear.k() == x.k);
  REQUIRE(linear.groups() == x.groups());
  CHECK(linear.scheme().bits == x.bits);
  const SharedOrder order = Value(linear.KOrder());
  for (uint64_t j = 0; j < order->size(); ++j) {
    REQUIRE(static_cast<uint64_t>(x.group_of[(*order)[j]]) == j / x.group_size);
  }
  CheckPanel(linear, x, {0, x.n, 0, x.k});
  SplitMix64 random(seed);
  for (int i = 0; i < 12; ++i) {
    PanelRange range;
    range.n0 = random.Below(x.n);
    range.rows = 1 + random.Below(x.n - range.n0);
    range.k0 = random.Below(x.k / 2) * 2;
    range.cols = 2 * (1 + random.Below((x.k - range.k0) / 2));
    if (!IsNibble(linear.scheme().code) && range.cols > 2) range.cols -= 1;
    CheckPanel(linear, x, range);
  }
  const uint64_t n0 = random.Below(x.n);
  const std::vector<float> scales = Scales(linear, n0, x.n - n0);
  const std::vector<uint8_t> zeros = ZeroPoints(linear, n0, x.n - n0);
  for (uint64_t n = n0; n < x.n; ++n) {
    for (uint64_t g = 0; g < x.groups(); ++g) {
      REQUIRE(scales[(n - n0) * x.groups() + g] == F16ToF32(x.scales[g * x.n + n]));
      REQUIRE(zeros[(n - n0) * x.groups() + g] == x.zeros[g * x.n + n]);
    }
  }
}

TEST_CASE("random GPTQ modules of every width read as they were packed") {
  uint64_t seed = 1;
  for (const uint32_t bits : {2U, 3U, 4U, 8U}) {
    for (const bool symmetric : {true, false}) {
      for (const bool stored_zeros : {false, true}) {
        for (const bool act_order : {false, true}) {
          SplitMix64 random(seed);
          GptqExample x;
          x.bits = bits;
          x.symmetric = symmetric;
          x.stored_zeros = stored_zeros;
          x.n = 1 + random.Below(75);
          x.k = 32 * (1 + random.Below(7));
          x.group_size = 8 * (1 + random.Below(9));  // the last group is short at times
          x.Randomize(seed, stored_zeros ? 0 : 1);
          if (act_order) x.Shuffle(seed);
          CheckExample(x, seed);
          ++seed;
        }
      }
    }
  }
}

TEST_CASE("random planar GPTQ modules read as they were packed") {
  for (uint32_t bits = 2; bits <= 8; ++bits) {
    GptqExample x;
    x.bits = bits;
    x.planar = true;
    x.stored_zeros = true;
    x.symmetric = bits % 2 == 0;
    x.n = 41;
    x.k = 128;
    x.group_size = 32;
    x.Randomize(bits, 0);
    if (bits > 4) x.Shuffle(bits);
    CheckExample(x, bits);
  }
}

TEST_CASE("panels longer than what is read at once are whole") {
  GptqExample x;
  x.bits = 3;
  x.n = 520;
  x.k = 1056;
  x.group_size = 96;
  x.Randomize(3, 1);
  CheckExample(x, 3);
  x.Shuffle(4);
  CheckExample(x, 4);
}

TEST_CASE("GPTQ modules of 4 bits can be read by input channel, in activation order as well") {
  GptqExample x;
  x.n = 200;
  x.k = 192;
  x.group_size = 32;
  x.Randomize(7, 1);
  for (const bool act_order : {false, true}) {
    if (act_order) x.Shuffle(7);
    const TempFolder temp;
    MakeGptq(x).Write(temp.path());
    const OpenedModel opened = MustOpen(temp.path());
    const QuantizedLinear& linear = opened.Module(kGptqModule);
    CheckColumns(linear, x, {0, x.n, 0, x.k});
    CheckColumns(linear, x, {8, 0, 0, x.k});
    SplitMix64 random(8);
    const uint64_t step = act_order ? 2 : 8;  // in the order of the file whole words only
    for (int i = 0; i < 12; ++i) {
      const uint64_t n0 = random.Below(x.n);
      const uint64_t k0 = random.Below(x.k / step) * step;
      CheckColumns(linear, x,
                   {n0, (x.n - n0) / 8 * 8, k0, step * (1 + random.Below((x.k - k0) / step))});
    }
    CHECK(linear.HasColumns({0, 8, 2, 8}) == act_order);
    CHECK(linear.HasColumns({0, 8, 0, 2}) == act_order);
    CHECK_FALSE(linear.HasColumns({0, 8, 0, 7}));
    CHECK_FALSE(linear.HasColumns({0, 4, 0, 8}));
    std::vector<std::byte> columns(32);
    CheckError(linear.ReadColumns({0, 4, 0, 8}, std::span(columns).first(16)), ErrorKind::kUsage,
               "does not store its codes by input channel");
    CheckError(linear.ReadColumns({200, 8, 0, 8}, columns), ErrorKind::kUsage, "does not fit");
  }
}

TEST_CASE("a panel that does not fit is a usage error") {
  TempFolder temp;
  SmallGptq().Write(temp.path());
  const OpenedModel opened = MustOpen(temp.path());
  std::vector<std::byte> out(16);
  CheckError(opened.Module(kGptqModule).ReadCodes({8, 1, 0, 32}, out), ErrorKind::kUsage,
             "the panel does not fit");
}

}  // namespace
}  // namespace prepack::testing
