#ifndef PREPACK_TOOLS_TABLE_H_
#define PREPACK_TOOLS_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prepack::cli {

enum class Align : uint8_t { kLeft, kRight };

// Columns of a terminal that UTF-8 text takes, as far as we write it.
size_t CodePoints(std::string_view text);

// Columns that line up. Cells may hold UTF-8; a cell's width is its number of code points.
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
  std::string Render(size_t indent = 0) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_TABLE_H_
