#include "html/depth_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>

#include "html/chart_axis.h"
#include "html/depth_order.h"
#include "io/escape.h"

namespace prepack {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 260;
constexpr double kLeft = 44;  // room for the numbers
constexpr double kRight = 8;
constexpr double kTop = 26;
constexpr double kBottom = 22;
constexpr size_t kColours = 8;  // k0 … k7 of the style sheet

double Y(const ChartAxis& axis, double value) {
  return kTop + (1 - axis.Place(value)) * (kHeight - kTop - kBottom);
}

// Kinds in the order in which a layer has them; the last colour is for all that are left, whose
// names, and how many there are, nobody needs.
class Kinds {
 public:
  explicit Kinds(const std::vector<DepthPoint>& points) {
    for (const DepthPoint& point : points) {
      if (names_.size() > kColours) break;
      const std::string_view kind = ModuleKind(point.module);
      if (std::ranges::find(names_, kind) == names_.end()) names_.push_back(kind);
    }
  }

  size_t ColourOf(std::string_view module) const {
    const auto found = std::ranges::find(names_, ModuleKind(module));
    return std::min(static_cast<size_t>(found - names_.begin()), kColours - 1);
  }

  std::string LegendHtml() const {
    std::string html = "<div class=\"legend\">";
    for (size_t i = 0; i < std::min(names_.size(), kColours); ++i) {
      const bool others = i == kColours - 1 && names_.size() > kColours;
      html += fmt::format(
          "<span><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><circle class=\"k{}\" cx=\"5\" "
          "cy=\"5\" r=\"5\"/></svg>{}</span>",
          i, others ? "others" : EscapeXml(names_[i]));
    }
    return html + "</div>\n";
  }

 private:
  std::vector<std::string_view> names_;
};

// Of the finite values and the bars.
ChartAxis AxisOf(const DepthChart& chart) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  const auto hold = [&](double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  };
  for (const DepthPoint& point : chart.points) hold(point.value);
  for (const double bar : chart.bars) hold(bar);
  return low <= high ? AxisAround(low, high) : ChartAxis{};
}

std::string GridSvg(const ChartAxis& axis, const std::string& unit) {
  std::string svg;
  for (const double tick : axis.Ticks()) {
    const double y = Y(axis, tick);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n",
        kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, tick);
  }
  return svg + fmt::format("<text x=\"{}\" y=\"10\" text-anchor=\"end\">{}</text>\n", kLeft - 6,
                           EscapeXml(unit));
}

std::string BarsSvg(const DepthChart& chart, const ChartAxis& axis) {
  std::string svg;
  for (const double bar : std::set<double>(chart.bars.begin(), chart.bars.end())) {
    const double y = Y(axis, bar);
    svg += fmt::format(
        "<line class=\"bar\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text class=\"bar\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">at least {:.6g}</text>\n",
        kLeft, kWidth - kRight, y, y, kWidth - kRight, y - 4, bar);
  }
  return svg;
}

std::string ValueText(double value, const std::string& unit) {
  if (std::isinf(value)) return value > 0 ? "no error" : "-inf";
  return fmt::format("{:.4g} {}", value, unit);
}

// Those that have a value.
std::vector<DepthPoint> AlongDepth(const std::vector<DepthPoint>& points) {
  std::vector<std::string> names;
  names.reserve(points.size());
  for (const DepthPoint& point : points) names.push_back(point.module);
  std::vector<DepthPoint> ordered;
  for (const size_t i : DepthOrder(names)) {
    if (!std::isnan(points[i].value)) ordered.push_back(points[i]);
  }
  return ordered;
}

// All indices; of more than one in a column, those of the lowest and of the highest.
std::vector<size_t> DrawnPoints(const std::vector<DepthPoint>& points, size_t per_column) {
  std::vector<size_t> drawn;
  for (size_t first = 0; first < points.size(); first += per_column) {
    const auto begin = points.begin() + static_cast<ptrdiff_t>(first);
    const auto end = begin + static_cast<ptrdiff_t>(std::min(per_column, points.size() - first));
    const auto [low, high] = std::ranges::minmax_element(begin, end, {}, &DepthPoint::value);
    drawn.push_back(static_cast<size_t>(low - points.begin()));
    if (high->value != low->value) drawn.push_back(static_cast<size_t>(high - points.begin()));
  }
  return drawn;
}

}  // namespace

std::string DepthChartSvg(const DepthChart& chart) {
  const std::vector<DepthPoint> points = AlongDepth(chart.points);
  if (points.empty()) return "";
  const Kinds kinds(points);
  const ChartAxis axis = AxisOf(chart);
  const size_t each = ModulesPerColumn(points.size());
  const double step = (kWidth - kLeft - kRight) / static_cast<double>(points.size());
  const double radius = std::clamp(step / 2, 1.5, 3.5);
  std::string caption = EscapeXml(chart.caption);
  if (each > 1) caption += fmt::format(": the lowest and the highest of every {} neighbours", each);
  std::string svg = fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      caption, kWidth, kHeight, caption);
  svg += GridSvg(axis, chart.unit) + BarsSvg(chart, axis);
  for (const size_t i : DrawnPoints(points, each)) {
    const DepthPoint& point = points[i];
    svg += fmt::format(
        "<circle class=\"k{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"><title>{}: {}</title>"
        "</circle>\n",
        kinds.ColourOf(point.module), kLeft + (static_cast<double>(i) + 0.5) * step,
        Y(axis, point.value), radius, EscapeXml(point.module),
        EscapeXml(ValueText(point.value, chart.unit)));
  }
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\">first module</text><text x=\"{}\" y=\"{}\" "
      "text-anchor=\"end\">last</text>\n</svg>\n",
      kLeft, kHeight - 6, kWidth - kRight, kHeight - 6);
  return svg + kinds.LegendHtml() + "</figure>\n";
}

}  // namespace prepack
