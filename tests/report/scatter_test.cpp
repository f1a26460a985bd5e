#include "prepack/report/scatter.h"

#include <limits>

#include "catch.h"
#include "html_text.h"
#include "text.h"

namespace prepack::testing {
namespace {

TEST_CASE("a scatter holds its points where they belong, marked ones last and larger") {
  const double infinite = std::numeric_limits<double>::infinity();
  const std::string svg = ScatterSvg({.caption = "batch <1>",
                                      .x_name = "seconds",
                                      .y_unit = "dB",
                                      .points = {{"a & b", "fast", 1e-3, 40, true},
                                                 {"slow one", "slow", 1e-1, 50, false},
                                                 {"exact", "slow", 1e-2, infinite, false},
                                                 {"none", "slow", 0, 50, false},
                                                 {"nan", "slow", 1, 0.0 * infinite, false}}});
  CHECK(CountOf(svg, "<title>") == 3);
  // From 1 ms at the left edge to 100 ms at the right one, 40 dB below and 50 above.
  CHECK(svg.find("<circle class=\"k0\" cx=\"44.0\" cy=\"286.0\" r=\"6\"><title>a &amp; b: 0.001 "
                 "seconds, 40 dB</title>") != std::string::npos);
  CHECK(svg.find("<circle class=\"k1\" cx=\"936.0\" cy=\"26.0\" r=\"3\"><title>slow one: 0.1 "
                 "seconds, 50 dB</title>") != std::string::npos);
  CHECK(
      svg.find("<circle class=\"k1\" cx=\"490.0\" cy=\"26.0\" r=\"3\"><title>exact: 0.01 seconds, "
               "no error</title>") != std::string::npos);
  CHECK(svg.find("exact") < svg.find("a &amp; b"));
  CHECK(svg.find("batch &lt;1&gt;") != std::string::npos);
  CHECK(CountOf(svg, "<span>") == 2);
}

TEST_CASE("a scatter without points is empty, and one of a single point is drawn") {
  CHECK(ScatterSvg({}).empty());
  CHECK(ScatterSvg({.caption = "x", .x_name = "s", .y_unit = "dB", .points = {{"a", "b", -1, 2}}})
            .empty());
  CHECK(
      CountOf(
          ScatterSvg(
              {.caption = "x", .x_name = "s", .y_unit = "dB", .points = {{"a", "b", 1, 2, false}}}),
          "<title>") == 1);
}

}  // namespace
}  // namespace prepack::testing
