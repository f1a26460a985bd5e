#include "gemm/reference.h"

#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("the reference multiplies x by the transpose of w") {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6};   // [2, 3]
  const std::vector<double> w = {1, 0, -1, 2, 2, 2};  // [2, 3]
  std::vector<double> y(4);
  ReferenceGemm(2, 2, 3, x, w, y);
  CHECK(y == std::vector<double>{-2, 12, -2, 30});
}

TEST_CASE("the ratio of signal to noise is in decibel") {
  SqnrAccumulator sqnr;
  sqnr.Add(std::vector<double>{3, 4}, std::vector<float>{3, 4.5F});
  CHECK(sqnr.Decibel() == Approx(20));  // 25 / 0.25
  SqnrAccumulator more;
  more.Add(std::vector<double>{5}, std::vector<float>{5});
  more.Merge(sqnr);
  CHECK(more.Decibel() == Approx(10 * std::log10(200)));
}

TEST_CASE("equal values have no noise, and a zero signal proves nothing") {
  SqnrAccumulator equal;
  equal.Add(std::vector<double>{1}, std::vector<float>{1});
  CHECK(equal.Decibel() == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(SqnrAccumulator().Decibel()));
  SqnrAccumulator zero;
  zero.Add(std::vector<double>{0, 0}, std::vector<float>{0, 0});
  CHECK(std::isnan(zero.Decibel()));
  SqnrAccumulator broken;
  broken.Add(std::vector<double>{1}, std::vector<float>{std::numeric_limits<float>::quiet_NaN()});
  CHECK(std::isnan(broken.Decibel()));
}

}  // namespace
}  // namespace prepack
