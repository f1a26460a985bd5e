#include "table.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace prepack::cli {

size_t CodePoints(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string Table::Render(size_t indent) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = CodePoints(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, CodePoints(row[i]));
    widths.push_back(width);
  }
  const auto line = [&](auto&& cell_of) {
    std::string text(indent, ' ');
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string pad(widths[i] - CodePoints(cell), ' ');
      if (i != 0) text += "  ";
      text += columns_[i].align == Align::kRight ? pad + cell : cell + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
  };
  std::string text = line([&](size_t i) -> const std::string& { return columns_[i].title; });
  for (const auto& row : rows_) {
    text += line([&](size_t i) -> const std::string& { return row[i]; });
  }
  return text;
}

}  // namespace prepack::cli
