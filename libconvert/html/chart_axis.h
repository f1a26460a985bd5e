#ifndef PREPACK_HTML_CHART_AXIS_H_
#define PREPACK_HTML_CHART_AXIS_H_

#include <vector>

namespace prepack {

// A range of numbers along the height of a chart, ends included; both are ticks.
struct ChartAxis {
  double low = 0;
  double high = 1;
  double step = 1;

  // Where a value lies: 0 at the low end, 1 at the high one, and no further.
  double Place(double value) const;
  std::vector<double> Ticks() const;
};

// An axis with ticks at round numbers that holds both; they are finite, and `high` is not below
// `low`.
ChartAxis AxisAround(double low, double high);

}  // namespace prepack

#endif  // PREPACK_HTML_CHART_AXIS_H_
