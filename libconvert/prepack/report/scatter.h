#pragma once

#include <string>
#include <vector>

namespace prepack {

// Things by two numbers, a dot each, coloured by their series; marked ones are larger.
struct ScatterPoint {
  std::string name;    // of the dot: "up_proj: w4a16"
  std::string series;  // "onednn/w4a16"
  double x = 0;        // above 0
  double y = 0;        // infinite: drawn at the upper edge
  bool marked = false;
};

struct ScatterChart {
  std::string caption;
  std::string x_name;  // "seconds"; its axis is logarithmic
  std::string y_unit;  // "dB"
  std::vector<ScatterPoint> points;
};

// Points with an x that is not above 0, or without a number, are left out. Empty without a point.
std::string ScatterSvg(const ScatterChart& chart);

}  // namespace prepack
