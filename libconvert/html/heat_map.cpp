#include "html/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "base/checked.h"
#include "html/depth_order.h"
#include "io/escape.h"

namespace prepack {
namespace {

constexpr double kMapWidth = 960;
constexpr double kNames = 150;  // room for the measures
constexpr double kRowHeight = 22;
constexpr double kRowGap = 3;
constexpr double kFaintest = 0.06;

bool IsMeasured(const HeatCell& cell) {
  return cell.value && !std::isnan(*cell.value);
}

// The range of the finite values of a row.
struct HeatRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  explicit HeatRange(const HeatRow& row) {
    for (const HeatCell& cell : row.cells) {
      if (!IsMeasured(cell) || std::isinf(*cell.value)) continue;
      low = std::min(low, *cell.value);
      high = std::max(high, *cell.value);
    }
  }

  // 0 for the best, 1 for the worst. Where all are the same, none is bad.
  double Badness(double value, bool high_is_good) const {
    if (std::isinf(value)) return (value > 0) == high_is_good ? 0 : 1;
    if (!(low < high)) return 0;
    const double place = (value - low) / (high - low);
    return high_is_good ? 1 - place : place;
  }
};

std::string CellSvg(const HeatRow& row, const HeatRange& range, const HeatCell& cell,
                    std::string_view module, double x, double y, double width) {
  const double opacity = std::max(kFaintest, range.Badness(*cell.value, row.high_is_good));
  return fmt::format(
      "<rect class=\"heat\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" "
      "fill-opacity=\"{:.2f}\"><title>{}: {} {}</title></rect>\n",
      x, y, width, kRowHeight, opacity, EscapeXml(module), EscapeXml(row.measure),
      EscapeXml(cell.text));
}

// The worst of some modules; nothing: none was measured.
std::optional<size_t> WorstOf(const HeatRow& row, const HeatRange& range,
                              std::span<const size_t> neighbours) {
  std::optional<size_t> worst;
  double most = -1;
  for (const size_t i : neighbours) {
    if (!IsMeasured(row.cells[i])) continue;
    const double badness = range.Badness(*row.cells[i].value, row.high_is_good);
    if (badness > most) {
      worst = i;
      most = badness;
    }
  }
  return worst;
}

}  // namespace

std::string HeatMapSvg(const HeatMap& map) {
  std::vector<const HeatRow*> rows;
  for (const HeatRow& row : map.rows) {
    if (std::ranges::any_of(row.cells, IsMeasured)) rows.push_back(&row);
  }
  if (rows.empty()) return "";
  const std::vector<size_t> order = DepthOrder(map.modules);
  const size_t each = ModulesPerColumn(order.size());
  const double cell = (kMapWidth - kNames) / static_cast<double>(CeilDiv(order.size(), each));
  const double height = static_cast<double>(rows.size()) * (kRowHeight + kRowGap);
  std::string caption = EscapeXml(map.caption);
  if (each > 1) caption += fmt::format(": the worst of every {} neighbours", each);
  std::string svg = fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {:.0f} {}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      caption, kMapWidth, height, caption);
  for (size_t r = 0; r < rows.size(); ++r) {
    const HeatRow& row = *rows[r];
    const HeatRange range(row);
    const double y = static_cast<double>(r) * (kRowHeight + kRowGap);
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kNames - 8,
                       y + kRowHeight / 2 + 4, EscapeXml(row.measure));
    for (size_t first = 0; first < order.size(); first += each) {
      const size_t count = std::min(each, order.size() - first);
      const auto worst = WorstOf(row, range, std::span(order).subspan(first, count));
      if (!worst) continue;
      const size_t column = first / each;
      svg += CellSvg(row, range, row.cells[*worst], map.modules[*worst],
                     kNames + static_cast<double>(column) * cell, y, cell);
    }
    svg += fmt::format("<rect class=\"frame\" x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\"/>\n",
                       kNames, y, kMapWidth - kNames, kRowHeight);
  }
  return svg + "</svg>\n</figure>\n";
}

}  // namespace prepack
