#ifndef PREPACK_HTML_HEAT_MAP_H_
#define PREPACK_HTML_HEAT_MAP_H_

// Modules, along the depth of the model, by measures. The darker a cell, the worse the module is
// among the others by that measure; modules that were not measured are left blank. Where there are
// too many to be told apart, a cell is the worst of some neighbours, and the caption says so.

#include <optional>
#include <string>
#include <vector>

namespace prepack {

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

}  // namespace prepack

#endif  // PREPACK_HTML_HEAT_MAP_H_
