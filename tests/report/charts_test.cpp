// Charts hold what they are given, where it belongs.

#include <fmt/format.h>

#include <limits>

#include "catch.h"
#include "html_text.h"
#include "prepack/report/charts.h"
#include "text.h"

namespace prepack::testing {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

TEST_CASE("axes have ticks at round numbers around what they hold") {
  const ChartAxis axis = AxisAround(41.3, 58.9);
  CHECK(axis.Ticks() == std::vector<double>{40, 45, 50, 55, 60});
  CHECK(axis.Place(40) == 0);
  CHECK(axis.Place(60) == 1);
  CHECK(axis.Place(50) == 0.5);
  CHECK(axis.Place(kInfinite) == 1);
  CHECK(axis.Place(-kInfinite) == 0);
}

TEST_CASE("axes of values that are the same are no division by zero") {
  for (const double value : {0.0, 50.0, -3e-12, 1e300}) {
    CAPTURE(value);
    const ChartAxis axis = AxisAround(value, value);
    CHECK(axis.low < axis.high);
    CHECK(axis.Place(value) > 0.1);
    CHECK(axis.Place(value) < 0.9);
    CHECK(axis.Ticks().size() >= 2);
    CHECK(axis.Ticks().size() < 12);
  }
}

TEST_CASE("modules are drawn along the depth, kinds in their colours, with their bars") {
  const std::string svg = DepthChartSvg({.caption = "SQNR",
                                         .unit = "dB",
                                         .points = {{"layers.10.q_proj", 50},
                                                    {"layers.2.q_proj", 40},
                                                    {"layers.2.k_proj", 45},
                                                    {"layers.3.q_proj", kUndefined},
                                                    {"layers.11.q_proj", kInfinite}},
                                         .bars = {40, 40, 45}});
  CHECK(CountOf(svg, "<title>") == 4);
  const size_t k = svg.find("<title>layers.2.k_proj: 45 dB</title>");
  const size_t q2 = svg.find("<title>layers.2.q_proj: 40 dB</title>");
  const size_t q10 = svg.find("<title>layers.10.q_proj: 50 dB</title>");
  const size_t q11 = svg.find("<title>layers.11.q_proj: no error</title>");
  CHECK(k < q2);
  CHECK(q2 < q10);
  CHECK(q10 < q11);
  CHECK(q11 != std::string::npos);
  CHECK(CountOf(svg, "class=\"k1\" cx=\"5\"") == 1);  // the legend
  CHECK(CountOf(svg, "<circle class=\"k1\"") == 4);
  CHECK(CountOf(svg, "<line class=\"bar\"") == 2);
  CHECK(Contains(svg, ">at least 45</text>"));
}

TEST_CASE("more kinds than colours share the last one") {
  DepthChart chart = {.caption = "", .unit = "", .points = {}, .bars = {}};
  for (int i = 0; i < 12; ++i) chart.points.push_back({fmt::format("kind{}", i), 1});
  const std::string svg = DepthChartSvg(chart);
  CHECK(CountOf(svg, "<circle class=\"k7\"") == 6);
  CHECK(Contains(svg, "</svg>others</span>"));
  CHECK_FALSE(Contains(svg, "k8"));
}

TEST_CASE("the worst cell of each measure is the strongest") {
  const HeatMap map = {
      .caption = "map",
      .modules = {"b", "a", "c", "d"},
      .rows = {{"sqnr", true, {{20, "20"}, {10, "10"}, {kInfinite, "inf"}, {{}, "-"}}},
               {"error", false, {{1, "1"}, {2, "2"}, {1.5, "1.5"}, {kUndefined, "nan"}}},
               {"nothing", true, {{{}, ""}, {{}, ""}, {{}, ""}, {{}, ""}}}}};
  const std::string svg = HeatMapSvg(map);
  CHECK(CountOf(svg, "<title>") == 6);
  CHECK(Contains(svg, "fill-opacity=\"1.00\"><title>a: sqnr 10</title>"));
  CHECK(Contains(svg, "fill-opacity=\"0.06\"><title>b: sqnr 20</title>"));
  CHECK(Contains(svg, "fill-opacity=\"0.06\"><title>c: sqnr inf</title>"));
  CHECK(Contains(svg, "fill-opacity=\"1.00\"><title>a: error 2</title>"));
  CHECK(Contains(svg, "fill-opacity=\"0.50\"><title>c: error 1.5</title>"));
  CHECK(svg.find("<title>a: sqnr") < svg.find("<title>b: sqnr"));
  CHECK_FALSE(Contains(svg, "nothing"));
}

// Of modules 0 to 2499, number 1234 has another value than all others.
constexpr size_t kMany = 2500;
constexpr size_t kOther = 1234;

TEST_CASE("of very many modules, the lowest and the highest of neighbours are drawn") {
  DepthChart chart = {.caption = "SQNR", .unit = "dB", .points = {}, .bars = {}};
  for (size_t i = 0; i < kMany; ++i) {
    chart.points.push_back({fmt::format("layers.{}.q", i), i == kOther ? 10.0 : 40.0});
  }
  const std::string svg = DepthChartSvg(chart);
  CHECK(CountOf(svg, "<title>") == 834 + 1);  // columns of 3, and one of them has two values
  CHECK(Contains(svg, "<title>layers.1234.q: 10 dB</title>"));
  CHECK(Contains(svg, "<figcaption>SQNR: the lowest and the highest of every 3 neighbours<"));
  CHECK_FALSE(Contains(DepthChartSvg({"few", "dB", {{"a", 1}}, {}}), "neighbours"));
}

TEST_CASE("of very many modules, the worst of neighbours is in a heat map") {
  HeatMap map = {.caption = "map",
                 .modules = {},
                 .rows = {{"high", true, {}}, {"low", false, {}}, {"some", true, {}}}};
  for (size_t i = 0; i < kMany; ++i) {
    map.modules.push_back(fmt::format("layers.{}.q", i));
    const double value = i == kOther ? 10 : 40;
    map.rows[0].cells.push_back({value, fmt::format("{}", value)});
    map.rows[1].cells.push_back({-value, fmt::format("{}", -value)});
    map.rows[2].cells.push_back(i < 4 ? HeatCell{1, "1"} : HeatCell{{}, "-"});
  }
  const std::string svg = HeatMapSvg(map);
  CHECK(CountOf(svg, "<title>") == 834 + 834 + 2);
  CHECK(Contains(svg, "fill-opacity=\"1.00\"><title>layers.1234.q: high 10</title>"));
  CHECK(Contains(svg, "fill-opacity=\"1.00\"><title>layers.1234.q: low -10</title>"));
  CHECK(Contains(svg, "<title>layers.3.q: some 1</title>"));
  CHECK(Contains(svg, "<figcaption>map: the worst of every 3 neighbours<"));
}

TEST_CASE("columns are as high as their counts") {
  const std::string svg =
      HistogramSvg({.caption = "codes", .bins = {{"-1", 1}, {"0", 4}, {"1", 2}}});
  CHECK(Contains(svg, "height=\"33.00\"><title>-1: 1 (14.29 %)</title>"));
  CHECK(Contains(svg, "height=\"132.00\"><title>0: 4 (57.14 %)</title>"));
  CHECK(Contains(svg, "height=\"66.00\"><title>1: 2 (28.57 %)</title>"));
}

TEST_CASE("charts of nothing are empty, and names in them are escaped") {
  CHECK(DepthChartSvg({}).empty());
  CHECK(DepthChartSvg({.caption = "", .unit = "", .points = {{"a", kUndefined}}, .bars = {}})
            .empty());
  CHECK(HeatMapSvg({.caption = "", .modules = {"a"}, .rows = {{"m", true, {{{}, ""}}}}}).empty());
  CHECK(HistogramSvg({.caption = "", .bins = {{"0", 0}}}).empty());
  const std::string name(kMarkup);
  const std::string svg =
      DepthChartSvg({.caption = name, .unit = name, .points = {{name, 1}}, .bars = {}}) +
      HeatMapSvg({.caption = name, .modules = {name}, .rows = {{name, true, {{1, name}}}}}) +
      HistogramSvg({.caption = name, .bins = {{name, 1}}});
  CHECK_FALSE(Contains(svg, kMarkup));
  CHECK(CountOf(svg, kEscaped) == 16);
}

}  // namespace
}  // namespace prepack::testing
