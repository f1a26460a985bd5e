#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/text.h"  // IWYU pragma: export

namespace prepack::cli {

// "12 s", "3 min 20 s", "2 h 5 min".
std::string HumanSeconds(double seconds);
// "[384, 1536]".
std::string ShapeText(std::span<const uint64_t> shape);

// A whole number as users write it, decimal or in hex with 0x; nothing else with it.
std::optional<uint64_t> ParseCount(std::string_view text);

}  // namespace prepack::cli

namespace prepack::cli {

enum class Align : uint8_t { kLeft, kRight };

// Columns that line up. Cells may hold UTF-8 and colours.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  // Header, rows; two spaces between columns, no trailing spaces, every line indented by `indent`.
  // No line is wider than the terminal, if there is one: see below.
  std::string Render(size_t indent = 0) const;
  // Cells of the widest columns that are aligned to the left are shortened, though not to less than
  // a few characters, where a line would be wider than `width` (0: no limit).
  std::string RenderWithin(size_t width, size_t indent) const;

 private:
  std::vector<size_t> WidthsWithin(size_t width, size_t indent) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// A table of a row for each module or tensor, with its name in the first cell, as somebody can read
// it: of more than kMostNamedRows, those that differ only in numbers of their names become one
// (FoldNames), with how many there are behind it.
class NamedTable {
 public:
  static constexpr size_t kMostNamedRows = 400;

  explicit NamedTable(std::vector<Table::Column> columns) : columns_(std::move(columns)) {}

  void AddRow(std::string name, std::vector<std::string> cells) {
    rows_.push_back({std::move(name), std::move(cells)});
  }
  bool empty() const { return rows_.empty(); }
  std::string Render(size_t indent = 0) const;

 private:
  struct Row {
    std::string name;
    std::vector<std::string> cells;
  };
  std::vector<Table::Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace prepack::cli
