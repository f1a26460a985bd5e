#include "prepack/report/table.h"

#include <cmath>
#include <limits>
#include <vector>

#include "catch.h"
#include "html_text.h"
#include "text.h"

namespace prepack::testing {
namespace {

constexpr double kHugeNumber = std::numeric_limits<double>::infinity();

TEST_CASE("cells have what they are sorted by, unless it is no number") {
  const std::string html = PlainTable(
      {{"name"}, {"dB", true}},
      {{{.text = "a"}, {.text = "1.5", .order = 1.5}},
       {{.text = "b"}, {.text = "inf", .order = kHugeNumber}},
       {{.text = "c"}, {.text = "-inf", .order = -kHugeNumber}},
       {{.text = "d"}, {.text = "-"}},
       {{.text = "e"}, {.text = "undefined", .order = std::numeric_limits<double>::quiet_NaN()}}});
  CHECK(Contains(html, "<th scope=\"col\">name</th><th scope=\"col\" class=\"number\">dB</th>"));
  CHECK(Contains(html, "<tr><td>a</td><td class=\"number\" data-v=\"1.5\">1.5</td></tr>"));
  CHECK(Contains(html, "<td class=\"number\" data-v=\"Infinity\">inf</td>"));
  CHECK(Contains(html, "<td class=\"number\" data-v=\"-Infinity\">-inf</td>"));
  CHECK(Contains(html, "<td class=\"number\">-</td>"));
  CHECK(Contains(html, "<td class=\"number\">undefined</td>"));
}

TEST_CASE("cells have the colour of what they mean") {
  const std::string html = PlainTable(
      {{"state"}, {"dB", true}},
      {{{.text = "failed", .tone = Tone::kBad}, {.text = "1", .order = 1, .tone = Tone::kGood}}});
  CHECK(Contains(html, "<td class=\"bad\">failed</td>"));
  CHECK(Contains(html, "<td class=\"number good\" data-v=\"1\">1</td>"));
}

TEST_CASE("a table for sorting is one with a field to search it") {
  const std::vector<HtmlColumn> columns = {{std::string(kMarkup)}};
  const std::vector<HtmlRow> rows = {{{.text = std::string(kMarkup)}}};
  const std::string html = SortableTable(columns, rows);
  CHECK(html.starts_with("<div class=\"sortable\">"));
  CHECK(Contains(html, "<input type=\"search\""));
  CHECK(Contains(html, PlainTable(columns, rows)));
  CHECK(CountOf(html, kEscaped) == 2);
  CHECK_FALSE(Contains(html, kMarkup));
  CHECK(PlainTable(columns, {}).empty());
  CHECK(SortableTable(columns, {}).empty());
}

TEST_CASE("of very many things, a table has the worst, in their order, and says so") {
  std::vector<double> values(kMostTableRows, 1);
  const auto rank = [](double value) { return value; };
  CHECK(TableRowsOf(values, rank).size() == kMostTableRows);
  CHECK(RowsLeftOutHtml(values.size()).empty());
  values.insert(values.end(), {0, std::numeric_limits<double>::quiet_NaN(), 2, -1});
  const std::vector<const double*> rows = TableRowsOf(values, rank);
  REQUIRE(rows.size() == kMostTableRows);
  CHECK(rows[0] == &values[0]);
  CHECK(rows[kMostTableRows - 4] == &values[kMostTableRows - 4]);
  CHECK(rows[kMostTableRows - 3] == &values[kMostTableRows]);
  CHECK(std::isnan(*rows[kMostTableRows - 2]));
  CHECK(*rows[kMostTableRows - 1] == -1);
  CHECK(Contains(RowsLeftOutHtml(values.size()), "the worst 5000 of 5004"));
}

}  // namespace
}  // namespace prepack::testing
