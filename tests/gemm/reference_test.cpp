#include "prepack/gemm/reference.h"

#include <cmath>
#include <vector>

#include "catch.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"

namespace prepack::testing {
namespace {

TEST_CASE("ReferenceGemm multiplies x with the transpose of w") {
  const std::vector<double> x = {1, 2, 3,  //
                                 4, 5, 6};
  const std::vector<double> w = {1,  0,   0,  //
                                 0,  1,   0,  //
                                 1,  1,   1,  //
                                 -1, 0.5, 2};
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    std::vector<double> y(8, 99);
    ReferenceGemm(2, 4, 3, x, w, y);
    CHECK(y == std::vector<double>{1, 2, 6, 6,  //
                                   4, 5, 15, 10.5});
  }
}

TEST_CASE("ReferenceGemm keeps what f32 would lose") {
  const std::vector<double> x = {1, 1, -1};
  const std::vector<double> w = {1e8, 0.125, 1e8};
  for (const Isa isa : SupportedIsas()) {
    const ScopedIsa scope(isa);
    std::vector<double> y(1);
    ReferenceGemm(1, 1, 3, x, w, y);
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
    const ScopedIsa scope(isa);
    std::vector<double> y(kM * kN);
    ReferenceGemm(kM, kN, kK, x, w, y);
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

}  // namespace
}  // namespace prepack::testing
