#ifndef PREPACK_HTML_TABLE_H_
#define PREPACK_HTML_TABLE_H_

// Tables, and those that the page's script sorts by the column that is clicked, and searches.

#include <optional>
#include <string>
#include <vector>

#include "html/page.h"

namespace prepack {

struct HtmlColumn {
  std::string title;
  bool number = false;  // sorted by HtmlCell::order
};

struct HtmlCell {
  std::string text;
  // Of a number. None, or NaN: comes last.
  std::optional<double> order = std::nullopt;
  Tone tone = Tone::kPlain;
};

using HtmlRow = std::vector<HtmlCell>;

// Empty without rows. Each row has a cell per column.
std::string PlainTable(const std::vector<HtmlColumn>& columns, const std::vector<HtmlRow>& rows);
std::string SortableTable(const std::vector<HtmlColumn>& columns, const std::vector<HtmlRow>& rows);

}  // namespace prepack

#endif  // PREPACK_HTML_TABLE_H_
