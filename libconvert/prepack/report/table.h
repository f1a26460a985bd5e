#pragma once

// Tables, and those that the page's script sorts by the column that is clicked, and searches.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "prepack/report/page.h"

namespace prepack {

struct HtmlColumn {
  std::string title;
  bool number = false;  // sorted by HtmlCell::order
};

struct HtmlCell {
  std::string text;
  // The number to sort by. Cells without one, or with NaN, come last.
  std::optional<double> order = std::nullopt;
  Tone tone = Tone::kPlain;
};

using HtmlRow = std::vector<HtmlCell>;

// Empty without rows. Each row has a cell per column.
std::string PlainTable(const std::vector<HtmlColumn>& columns, const std::vector<HtmlRow>& rows);
std::string SortableTable(const std::vector<HtmlColumn>& columns, const std::vector<HtmlRow>& rows);

// A browser takes seconds for more rows.
inline constexpr size_t kMostTableRows = 5000;

// Returns the rows to show: all of them, or the kMostTableRows with the lowest rank, in input
// order. NaN is below all.
template <typename Thing, typename Rank>
std::vector<const Thing*> TableRowsOf(const std::vector<Thing>& things, const Rank& rank) {
  std::vector<const Thing*> rows;
  rows.reserve(things.size());
  for (const Thing& thing : things) rows.push_back(&thing);
  if (rows.size() <= kMostTableRows) return rows;
  std::ranges::stable_sort(rows, {}, [&](const Thing* thing) {
    const double value = rank(*thing);
    return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
  });
  rows.resize(kMostTableRows);
  std::ranges::sort(rows);
  return rows;
}

// A sentence on `all` things where a table has not all of them.
std::string RowsLeftOutHtml(size_t all);

}  // namespace prepack
