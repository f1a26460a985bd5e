#include "prepack/report/table.h"

#include <fmt/format.h>

#include <cmath>

#include "prepack/report/page.h"

namespace prepack {
namespace {

std::string HeadHtml(const std::vector<HtmlColumn>& columns) {
  std::string html = "<thead><tr>";
  for (const HtmlColumn& column : columns) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>", column.number ? " class=\"number\"" : "",
                        EscapeXml(column.title));
  }
  return html + "</tr></thead>\n";
}

// As JavaScript's Number() reads it.
std::string OrderText(double order) {
  if (std::isinf(order)) return order < 0 ? "-Infinity" : "Infinity";
  return fmt::format("{}", order);
}

std::string CellHtml(const HtmlColumn& column, const HtmlCell& cell) {
  std::string classes(column.number ? "number" : "");
  if (cell.tone != Tone::kPlain) {
    classes += fmt::format("{}{}", classes.empty() ? "" : " ", ToneClass(cell.tone));
  }
  std::string html = "<td";
  if (!classes.empty()) html += fmt::format(" class=\"{}\"", classes);
  if (cell.order && !std::isnan(*cell.order)) {
    html += fmt::format(" data-v=\"{}\"", OrderText(*cell.order));
  }
  return html + fmt::format(">{}</td>", EscapeXml(cell.text));
}

}  // namespace

std::string PlainTable(const std::vector<HtmlColumn>& columns, const std::vector<HtmlRow>& rows) {
  if (rows.empty()) return "";
  std::string html = fmt::format("<div class=\"wide\"><table>\n{}<tbody>\n", HeadHtml(columns));
  for (const HtmlRow& row : rows) {
    html += "<tr>";
    for (size_t i = 0; i < columns.size(); ++i) html += CellHtml(columns[i], row[i]);
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table></div>\n";
}

std::string RowsLeftOutHtml(size_t all) {
  if (all <= kMostTableRows) return "";
  return HtmlList(
      {fmt::format("The table has the worst {} of {}; --json has all.", kMostTableRows, all)});
}

std::string SortableTable(const std::vector<HtmlColumn>& columns,
                          const std::vector<HtmlRow>& rows) {
  if (rows.empty()) return "";
  return fmt::format(
      "<div class=\"sortable\">\n<label class=\"search\" hidden=\"hidden\"><input type=\"search\" "
      "placeholder=\"Search\" aria-label=\"Search the table\"/><span></span></label>\n{}</div>\n",
      PlainTable(columns, rows));
}

}  // namespace prepack
