#include "prepack/report/scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "prepack/report/charts.h"
#include "prepack/report/page.h"

namespace prepack {
namespace {

constexpr double kScatterWidth = 960;
constexpr double kScatterHeight = 320;
constexpr double kScatterLeft = 44;  // room for the numbers
constexpr double kScatterRight = 24;
constexpr double kScatterTop = 26;
constexpr double kScatterBottom = 34;
constexpr size_t kSeriesColours = 8;  // k0 … k7 of the style sheet

struct ScatterAxes {
  ChartAxis x;  // of logarithms to the base 10
  ChartAxis y;

  double PlaceX(double value) const {
    return kScatterLeft +
           x.Place(std::log10(value)) * (kScatterWidth - kScatterLeft - kScatterRight);
  }
  double PlaceY(double value) const {
    return kScatterTop + (1 - y.Place(value)) * (kScatterHeight - kScatterTop - kScatterBottom);
  }
};

// Whole decades, and the finite values of y.
ScatterAxes AxesOf(const std::vector<ScatterPoint>& points) {
  double left = std::numeric_limits<double>::infinity();
  double right = -left;
  double low = left;
  double high = right;
  for (const ScatterPoint& point : points) {
    left = std::min(left, std::floor(std::log10(point.x)));
    right = std::max(right, std::ceil(std::log10(point.x)));
    if (std::isinf(point.y)) continue;
    low = std::min(low, point.y);
    high = std::max(high, point.y);
  }
  return {.x = {.low = left, .high = std::max(right, left + 1), .step = 1},
          .y = low <= high ? AxisAround(low, high) : ChartAxis{}};
}

std::string ScatterGridSvg(const ScatterChart& chart, const ScatterAxes& axes) {
  std::string svg;
  for (const double tick : axes.y.Ticks()) {
    const double y = axes.PlaceY(tick);
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g}</text>\n",
        kScatterLeft, kScatterWidth - kScatterRight, y, y, kScatterLeft - 6, y + 4, tick);
  }
  for (const double tick : axes.x.Ticks()) {
    const double x = axes.PlaceX(std::pow(10.0, tick));
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.6g}</text>\n",
        x, x, kScatterTop, kScatterHeight - kScatterBottom, x, kScatterHeight - kScatterBottom + 14,
        std::pow(10.0, tick));
  }
  return svg + fmt::format(
                   "<text x=\"{}\" y=\"10\" text-anchor=\"end\">{}</text>"
                   "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
                   kScatterLeft - 6, EscapeXml(chart.y_unit), kScatterWidth - kScatterRight,
                   kScatterHeight - 4, EscapeXml(chart.x_name));
}

std::vector<std::string> SeriesOf(const std::vector<ScatterPoint>& points) {
  std::vector<std::string> series;
  for (const ScatterPoint& point : points) {
    if (std::ranges::count(series, point.series) == 0) series.push_back(point.series);
  }
  return series;
}

std::string SeriesLegendHtml(const std::vector<std::string>& series) {
  std::string html = "<div class=\"legend\">";
  for (size_t i = 0; i < series.size(); ++i) {
    html += fmt::format(
        "<span><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><circle class=\"k{}\" cx=\"5\" "
        "cy=\"5\" r=\"5\"/></svg>{}</span>",
        i % kSeriesColours, EscapeXml(series[i]));
  }
  return html + "</div>\n";
}

}  // namespace

std::string ScatterSvg(const ScatterChart& chart) {
  std::vector<ScatterPoint> points;
  std::ranges::copy_if(chart.points, std::back_inserter(points), [](const ScatterPoint& point) {
    return point.x > 0 && std::isfinite(point.x) && !std::isnan(point.y);
  });
  if (points.empty()) return "";
  // Marked ones are drawn last, above the others.
  std::ranges::stable_sort(points, {}, &ScatterPoint::marked);
  const std::vector<std::string> series = SeriesOf(chart.points);
  const ScatterAxes axes = AxesOf(points);
  const std::string caption = EscapeXml(chart.caption);
  std::string svg = fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      caption, kScatterWidth, kScatterHeight, caption);
  svg += ScatterGridSvg(chart, axes);
  for (const ScatterPoint& point : points) {
    const auto colour = std::ranges::find(series, point.series) - series.begin();
    svg += fmt::format(
        "<circle class=\"k{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}: {:.3g} {}, {}"
        "</title></circle>\n",
        static_cast<size_t>(colour) % kSeriesColours, axes.PlaceX(point.x), axes.PlaceY(point.y),
        point.marked ? 6 : 3, EscapeXml(point.name), point.x, EscapeXml(chart.x_name),
        std::isinf(point.y) ? std::string("no error")
                            : fmt::format("{:.4g} {}", point.y, EscapeXml(chart.y_unit)));
  }
  return svg + "</svg>\n" + SeriesLegendHtml(series) + "</figure>\n";
}

}  // namespace prepack
