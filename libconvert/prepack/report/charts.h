#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

// Whether module `a` comes before `b` along the depth of the model: layer 2 before layer 10.
bool IsShallower(std::string_view a, std::string_view b);

// The indices of `modules` along the depth of the model.
std::vector<size_t> DepthOrder(const std::vector<std::string>& modules);

// How many neighbours along the depth of `count` modules share a column of a chart: more columns
// than some 1000 cannot be told apart, and a page has to be opened.
size_t ModulesPerColumn(size_t count);

// The kind of a module, by which modules of different layers are alike: "q_proj".
std::string_view ModuleKind(std::string_view module);

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

// One number per module along the depth of the model, a dot each, coloured by the kind of module;
// with the bars that they must reach. Where there are too many to be told apart, the lowest and the
// highest of some neighbours are drawn, and the caption says so.

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

// Modules, along the depth of the model, by measures. The darker a cell, the worse the module is
// among the others by that measure; modules that were not measured are left blank. Where there are
// too many to be told apart, a cell is the worst of some neighbours, and the caption says so.

struct HeatCell {
  // None, or NaN: not measured. Infinite: the best, or the worst, there is.
  std::optional<double> value;
  std::string text;  // as it is shown
};

struct HeatRow {
  std::string measure;
  bool high_is_good = true;
  std::vector<HeatCell> cells;  // one per module
};

struct HeatMap {
  std::string caption;
  std::vector<std::string> modules;  // in any order
  std::vector<HeatRow> rows;         // those in which nothing was measured are left out
};

// Empty when nothing was measured.
std::string HeatMapSvg(const HeatMap& map);

// How often each of some values occurs, a column each.

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
