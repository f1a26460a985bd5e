#ifndef PREPACK_HTML_HISTOGRAM_CHART_H_
#define PREPACK_HTML_HISTOGRAM_CHART_H_

// How often each of some values occurs, a column each.

#include <cstdint>
#include <string>
#include <vector>

namespace prepack {

struct HistogramBin {
  std::string label;  // "-8", "2^-10"
  uint64_t count = 0;
};

struct HistogramChart {
  std::string caption;
  std::vector<HistogramBin> bins;  // ascending
};

// Empty when all counts are 0.
std::string HistogramSvg(const HistogramChart& chart);

}  // namespace prepack

#endif  // PREPACK_HTML_HISTOGRAM_CHART_H_
