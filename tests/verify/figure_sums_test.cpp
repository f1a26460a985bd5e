#include "prepack/verify/products.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kRows = 24;
constexpr uint64_t kChannels = 10;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Outputs that NumPy can make as well:
//
//   i = np.arange(240, dtype=np.uint64)
//   s = (i * 2654435761 % 2**32) / 2**31 - 1
//   v = np.float32(s + ((i * 40503 % 65536) / 65536 - 0.5) * 2.0**-9 * (1 + i % 10))
struct Outputs {
  std::vector<double> signal;
  std::vector<float> value;

  Outputs() {
    for (uint64_t i = 0; i < kRows * kChannels; ++i) {
      const auto hashed = static_cast<double>(i * 2654435761U % (uint64_t{1} << 32));
      const auto error = static_cast<double>(i * 40503 % 65536) / 65536 - 0.5;
      signal.push_back(hashed / 2147483648.0 - 1);
      const auto factor = static_cast<double>(1 + i % kChannels);
      value.push_back(static_cast<float>(signal.back() + error * 0x1p-9 * factor));
    }
  }
};

constexpr OutputBlock kBlock{.n0 = 100, .rows = kRows, .channels = kChannels};

// The constants: math.fsum over the arrays above, math.log10 and math.sqrt.
TEST_CASE("figures are those of NumPy") {
  const Outputs outputs;
  FigureSums sums;
  sums.Add(kBlock, outputs.signal, outputs.value);
  const Figure figure = sums.Result();
  CHECK(std::abs(figure.sqnr_db - 44.388592362559) < 1e-11);
  CHECK(std::abs(figure.cosine - 0.999996077850798) < 1e-14);
  CHECK(figure.max_abs_error == 0.0096800965256989002);
  CHECK(figure.worst_channel == 100 + 9);
  CHECK(std::abs(figure.worst_channel_sqnr_db - 40.207672343008) < 1e-11);
}

TEST_CASE("blocks of channels give the figures of the whole") {
  const Outputs outputs;
  FigureSums whole;
  whole.Add(kBlock, outputs.signal, outputs.value);
  FigureSums merged;
  for (uint64_t channel = 0; channel < kChannels; ++channel) {
    std::vector<double> signal;
    std::vector<float> value;
    for (uint64_t row = 0; row < kRows; ++row) {
      signal.push_back(outputs.signal[row * kChannels + channel]);
      value.push_back(outputs.value[row * kChannels + channel]);
    }
    FigureSums part;
    part.Add({.n0 = 100 + channel, .rows = kRows, .channels = 1}, signal, value);
    merged.Merge(part);
  }
  CHECK(std::abs(merged.Result().sqnr_db - whole.Result().sqnr_db) < 1e-12);
  CHECK(merged.Result().worst_channel == whole.Result().worst_channel);
  CHECK(merged.Result().max_abs_error == whole.Result().max_abs_error);
}

TEST_CASE("small numbers are not lost beside large ones") {
  CompensatedSum sum;
  sum.Add(1e16);
  for (int i = 0; i < 1000; ++i) sum.Add(1);
  sum.Add(-1e16);
  CHECK(sum.Value() == 1000);
  CompensatedSum other;
  other.Add(sum);
  CHECK(other.Value() == 1000);
}

TEST_CASE("equal outputs have an infinite SQNR") {
  FigureSums sums;
  sums.Add({.n0 = 0, .rows = 1, .channels = 2}, std::vector<double>{1, 2},
           std::vector<float>{1, 2});
  CHECK(sums.Result().sqnr_db == std::numeric_limits<double>::infinity());
  CHECK(sums.Result().cosine == 1);
}

TEST_CASE("an output that is not finite is infinite noise") {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    FigureSums sums;
    sums.Add({.n0 = 0, .rows = 2, .channels = 2}, std::vector<double>{1, 2, 3, 4},
             std::vector<float>{1, 2, 3, bad});
    CHECK(sums.Result().sqnr_db == -std::numeric_limits<double>::infinity());
    CHECK(sums.Result().worst_channel == 1);
    CHECK(sums.Result().worst_channel_sqnr_db == -std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("a truth that is zero or not finite proves nothing") {
  for (const double truth : {0.0, static_cast<double>(kInfinity), std::nan("")}) {
    FigureSums sums;
    sums.Add({.n0 = 0, .rows = 1, .channels = 1}, std::vector<double>{truth},
             std::vector<float>{1});
    CHECK(std::isnan(sums.Result().sqnr_db));
  }
}

TEST_CASE("a channel of zeros is right when it comes out as zeros, and only then") {
  FigureSums right;
  right.Add({.n0 = 0, .rows = 1, .channels = 2}, std::vector<double>{0, 1},
            std::vector<float>{0, 1.5F});
  CHECK(right.Result().worst_channel == 1);
  FigureSums wrong;
  wrong.Add({.n0 = 0, .rows = 1, .channels = 2}, std::vector<double>{0, 1},
            std::vector<float>{0.1F, 1.5F});
  CHECK(wrong.Result().worst_channel == 0);
}

FigureSums Sums(const std::vector<double>& signal, const std::vector<float>& value) {
  FigureSums sums;
  sums.Add({.n0 = 0, .rows = signal.size(), .channels = 1}, signal, value);
  return sums;
}

double SqnrOf(const std::vector<double>& signal, const std::vector<float>& value) {
  return Sums(signal, value).Result().sqnr_db;
}

TEST_CASE("SQNR of numbers worked out by hand") {
  // 100 / 1 and 10000 / 0.01.
  CHECK(std::abs(SqnrOf({10}, {9}) - 20) < 1e-12);
  CHECK(std::abs(SqnrOf({6, 8}, {6, 9}) - 20) < 1e-12);
  CHECK(std::abs(SqnrOf({60, 80, 0}, {60, 80, 0.125F}) - 10 * std::log10(10000 / 0.015625)) <
        1e-12);
  // Noise above the signal is a negative figure.
  CHECK(std::abs(SqnrOf({1}, {11}) + 20) < 1e-12);
  // All values lost: as much noise as signal.
  CHECK(SqnrOf({3, 4}, {0, 0}) == 0);
}

TEST_CASE("SQNR of nothing, and of sums that overflow, proves nothing") {
  CHECK(std::isnan(FigureSums().Result().sqnr_db));
  CHECK(std::isnan(SqnrOf({0, 0}, {0, 0})));
  CHECK(std::isnan(SqnrOf({0, 0}, {1, 0})));
  CHECK(std::isnan(SqnrOf({1, static_cast<double>(kInfinity)}, {1, 2})));
  CHECK(std::isnan(SqnrOf({1, static_cast<double>(kInfinity)}, {1, kInfinity})));
  CHECK(std::isnan(SqnrOf({1, std::nan("")}, {1, 2})));
  CHECK(std::isnan(SqnrOf({1e200, 1}, {1, 1})));
}

TEST_CASE("a value that is not finite cannot be outweighed later") {
  FigureSums sums = Sums({1}, {std::nanf("")});
  sums.Merge(Sums({1e6}, {1e6F}));
  CHECK(sums.Result().sqnr_db == -std::numeric_limits<double>::infinity());
}

TEST_CASE("rows add up to the whole") {
  FigureSums merged = Sums({6}, {6});
  merged.Merge(Sums({8}, {9}));
  merged.Merge(FigureSums());
  CHECK(merged.Result().sqnr_db == SqnrOf({6, 8}, {6, 9}));
}

}  // namespace
}  // namespace prepack::testing
