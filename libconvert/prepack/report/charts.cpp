#include "prepack/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <set>
#include <span>
#include <string_view>

#include "prepack/base/checked.h"
#include "prepack/report/page.h"

namespace prepack {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// The number that `text` begins with, without zeros in front; taken off.
std::string_view TakeNumber(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const size_t begin = std::min(text.find_first_not_of('0'), end);
  const std::string_view number = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return number;
}

}  // namespace

bool IsShallower(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (IsDigit(a.front()) && IsDigit(b.front())) {
      const std::string_view first = TakeNumber(a);
      const std::string_view second = TakeNumber(b);
      if (first.size() != second.size()) return first.size() < second.size();
      if (first != second) return first < second;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

std::vector<size_t> DepthOrder(const std::vector<std::string>& modules) {
  std::vector<size_t> order(modules.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return IsShallower(modules[a], modules[b]); });
  return order;
}

size_t ModulesPerColumn(size_t count) {
  constexpr size_t kMostColumns = 1000;
  return std::max<size_t>(1, CeilDiv(count, kMostColumns));
}

std::string_view ModuleKind(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}

namespace {

constexpr double kTicks = 5;  // or fewer, about

// 1, 2 or 5 times a power of ten.
double RoundStep(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

}  // namespace

double ChartAxis::Place(double value) const {
  return std::clamp((value - low) / (high - low), 0.0, 1.0);
}

std::vector<double> ChartAxis::Ticks() const {
  std::vector<double> ticks;
  const auto count = static_cast<int>(std::lround((high - low) / step));
  for (int i = 0; i <= count; ++i) ticks.push_back(low + i * step);
  return ticks;
}

ChartAxis AxisAround(double low, double high) {
  // Values that are all the same lie in the middle.
  const double least_span = std::max(1e-9, std::abs(high) * 1e-3);
  if (high - low < least_span) {
    low -= least_span / 2;
    high += least_span / 2;
  }
  const double step = RoundStep((high - low) / kTicks);
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step};
}

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

// The axis spans the finite values and the bars.
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
