#include "html/chart_axis.h"

#include <algorithm>
#include <cmath>

namespace prepack {
namespace {

constexpr double kTicks = 5;  // or fewer, about

// 1, 2 or 5 times a power of ten.
double RoundStep(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

}  // namespace

double ChartAxis::Place(double value) const {
  return std::clamp((value - low) / (high - low), 0.0, 1.0);
}

std::vector<double> ChartAxis::Ticks() const {
  std::vector<double> ticks;
  const auto count = static_cast<int>(std::lround((high - low) / step));
  for (int i = 0; i <= count; ++i) ticks.push_back(low + i * step);
  return ticks;
}

ChartAxis AxisAround(double low, double high) {
  // Values that are all the same lie in the middle.
  const double least_span = std::max(1e-9, std::abs(high) * 1e-3);
  if (high - low < least_span) {
    low -= least_span / 2;
    high += least_span / 2;
  }
  const double step = RoundStep((high - low) / kTicks);
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step};
}

}  // namespace prepack
