#ifndef PREPACK_HTML_DEPTH_CHART_H_
#define PREPACK_HTML_DEPTH_CHART_H_

// One number per module along the depth of the model, a dot each, coloured by the kind of module;
// with the bars that they must reach. Where there are too many to be told apart, the lowest and the
// highest of some neighbours are drawn, and the caption says so.

#include <string>
#include <vector>

namespace prepack {

struct DepthPoint {
  std::string module;
  double value = 0;  // infinite: drawn at the upper edge; NaN: left out
};

struct DepthChart {
  std::string caption;
  std::string unit;                // "dB"
  std::vector<DepthPoint> points;  // in any order
  std::vector<double> bars;        // drawn as lines; in any order, the same ones drawn once
};

// Empty without a point.
std::string DepthChartSvg(const DepthChart& chart);

}  // namespace prepack

#endif  // PREPACK_HTML_DEPTH_CHART_H_
