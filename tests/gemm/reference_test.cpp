#include "gemm/reference.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "catch.h"

namespace prepack {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SqnrAccumulator Sums(const std::vector<double>& signal, const std::vector<float>& value) {
  SqnrAccumulator sums;
  sums.Add(signal, value);
  return sums;
}

TEST_CASE("ReferenceGemm multiplies x with the transpose of w") {
  const std::vector<double> x = {1, 2, 3,  //
                                 4, 5, 6};
  const std::vector<double> w = {1,  0,   0,  //
                                 0,  1,   0,  //
                                 1,  1,   1,  //
                                 -1, 0.5, 2};
  for (const Isa isa : SupportedIsas()) {
    std::vector<double> y(8, 99);
    ReferenceGemm(isa, 2, 4, 3, x, w, y);
    CHECK(y == std::vector<double>{1, 2, 6, 6,  //
                                   4, 5, 15, 10.5});
  }
}

TEST_CASE("ReferenceGemm keeps what f32 would lose") {
  const std::vector<double> x = {1, 1, -1};
  const std::vector<double> w = {1e8, 0.125, 1e8};
  for (const Isa isa : SupportedIsas()) {
    std::vector<double> y(1);
    ReferenceGemm(isa, 1, 1, 3, x, w, y);
    CHECK(y[0] == 0.125);
  }
}

TEST_CASE("ReferenceGemm agrees with three plain loops on odd sizes") {
  constexpr uint64_t kM = 5;
  constexpr uint64_t kN = 37;
  constexpr uint64_t kK = 131;
  SplitMix64 random(7);
  std::vector<double> x(kM * kK);
  std::vector<double> w(kN * kK);
  for (double& value : x) value = random.Gaussian();
  for (double& value : w) value = random.Gaussian();
  for (const Isa isa : SupportedIsas()) {
    std::vector<double> y(kM * kN);
    ReferenceGemm(isa, kM, kN, kK, x, w, y);
    double worst = 0;
    for (uint64_t m = 0; m < kM; ++m) {
      for (uint64_t n = 0; n < kN; ++n) {
        double sum = 0;
        for (uint64_t k = 0; k < kK; ++k) sum += x[m * kK + k] * w[n * kK + k];
        worst = std::max(worst, std::abs(sum - y[m * kN + n]));
      }
    }
    CHECK(worst < 1e-11);
  }
}

TEST_CASE("SQNR of numbers worked out by hand") {
  // 100 / 1 and 10000 / 0.01.
  CHECK(std::abs(Sums({10}, {9}).Decibel() - 20) < 1e-12);
  CHECK(std::abs(Sums({6, 8}, {6, 9}).Decibel() - 20) < 1e-12);
  CHECK(std::abs(Sums({60, 80, 0}, {60, 80, 0.125F}).Decibel() -
                 10 * std::log10(10000 / 0.015625)) < 1e-12);
  // Noise above the signal is a negative figure.
  CHECK(std::abs(Sums({1}, {11}).Decibel() + 20) < 1e-12);
  // All values lost: as much noise as signal.
  CHECK(Sums({3, 4}, {0, 0}).Decibel() == 0);
}

TEST_CASE("SQNR of equal numbers is infinite") {
  CHECK(Sums({1, -2, 0}, {1, -2, 0}).Decibel() == std::numeric_limits<double>::infinity());
}

TEST_CASE("SQNR of nothing, and of zeros, proves nothing") {
  CHECK(std::isnan(SqnrAccumulator().Decibel()));
  CHECK(std::isnan(Sums({0, 0}, {0, 0}).Decibel()));
  CHECK(std::isnan(Sums({0, 0}, {1, 0}).Decibel()));
}

TEST_CASE("SQNR with anything that is not finite proves nothing") {
  CHECK(std::isnan(Sums({1, 2}, {1, kNan}).Decibel()));
  CHECK(std::isnan(Sums({1, 2}, {1, kInf}).Decibel()));
  CHECK(std::isnan(Sums({1, static_cast<double>(kNan)}, {1, 2}).Decibel()));
  CHECK(std::isnan(Sums({1, static_cast<double>(kInf)}, {1, 2}).Decibel()));
  CHECK(std::isnan(Sums({1, static_cast<double>(kInf)}, {1, kInf}).Decibel()));
  // A sum that overflows counts as well.
  CHECK(std::isnan(Sums({1e200, 1}, {1, 1}).Decibel()));
}

TEST_CASE("a value that is not finite cannot be outweighed later") {
  SqnrAccumulator sums = Sums({1}, {kNan});
  sums.Add(std::vector<double>{1e6}, std::vector<float>{1e6F});
  sums.Merge(Sums({1e6}, {1e6F}));
  CHECK(std::isnan(sums.Decibel()));
}

TEST_CASE("blocks add up to the whole") {
  SqnrAccumulator sums = Sums({6}, {6});
  sums.Add(std::vector<double>{8}, std::vector<float>{9});
  CHECK(sums.Decibel() == Sums({6, 8}, {6, 9}).Decibel());
  SqnrAccumulator merged = Sums({6}, {6});
  merged.Merge(Sums({8}, {9}));
  merged.Merge(SqnrAccumulator());
  CHECK(merged.Decibel() == Sums({6, 8}, {6, 9}).Decibel());
}

}  // namespace
}  // namespace prepack
