#include "html/histogram_chart.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/escape.h"

namespace prepack {
namespace {

constexpr double kChartWidth = 400;
constexpr double kChartHeight = 150;
constexpr double kLabels = 18;  // room below the columns
constexpr double kGap = 0.15;   // between columns, of their width
constexpr size_t kMostLabels = 8;

}  // namespace

std::string HistogramSvg(const HistogramChart& chart) {
  uint64_t total = 0;
  uint64_t most = 0;
  for (const HistogramBin& bin : chart.bins) {
    total += bin.count;
    most = std::max(most, bin.count);
  }
  if (total == 0) return "";
  const double step = kChartWidth / static_cast<double>(chart.bins.size());
  const size_t labelled = (chart.bins.size() + kMostLabels - 1) / kMostLabels;
  std::string svg = fmt::format(
      "<figure>\n<figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\">\n",
      EscapeXml(chart.caption), kChartWidth, kChartHeight, EscapeXml(chart.caption));
  for (size_t i = 0; i < chart.bins.size(); ++i) {
    const HistogramBin& bin = chart.bins[i];
    const double height =
        static_cast<double>(bin.count) / static_cast<double>(most) * (kChartHeight - kLabels);
    const double x = static_cast<double>(i) * step;
    svg += fmt::format(
        "<rect class=\"k0\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"><title>"
        "{}: {} ({:.2f} %)</title></rect>\n",
        x + step * kGap / 2, kChartHeight - kLabels - height, step * (1 - kGap), height,
        EscapeXml(bin.label), bin.count,
        100 * static_cast<double>(bin.count) / static_cast<double>(total));
    if (i % labelled != 0) continue;
    // The first label would stick out.
    svg += fmt::format("<text x=\"{:.2f}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n",
                       i == 0 ? x : x + step / 2, kChartHeight - 5, i == 0 ? "start" : "middle",
                       EscapeXml(bin.label));
  }
  svg += fmt::format("<line class=\"grid\" x1=\"0\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", kChartWidth,
                     kChartHeight - kLabels, kChartHeight - kLabels);
  return svg + "</svg>\n</figure>\n";
}

}  // namespace prepack
