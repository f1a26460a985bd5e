#include "table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "prepack/base/text.h"
#include "prepack/inspect/summary.h"
#include "terminal.h"

namespace prepack::cli {

std::string HumanSeconds(double seconds) {
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string ShapeText(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<uint64_t> ParseCount(std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  return ParseUint(text, hex ? 16 : 10);
}

}  // namespace prepack::cli

namespace prepack::cli {
namespace {

constexpr size_t kGap = 2;          // columns between two cells
constexpr size_t kLeastWidth = 16;  // to which cells are shortened

}  // namespace

std::vector<size_t> Table::WidthsWithin(size_t width, size_t indent) const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t widest = Columns(columns_[i].title);
    for (const auto& row : rows_) widest = std::max(widest, Columns(row[i]));
    widths.push_back(widest);
  }
  if (width == 0) return widths;
  size_t total = std::accumulate(widths.begin(), widths.end(), indent + kGap * (widths.size() - 1));
  while (total > width) {
    size_t* widest = nullptr;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (columns_[i].align != Align::kLeft || widths[i] <= kLeastWidth) continue;
      if (widest == nullptr || widths[i] > *widest) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
    --total;
  }
  return widths;
}

std::string Table::RenderWithin(size_t width, size_t indent) const {
  const std::vector<size_t> widths = WidthsWithin(width, indent);
  const auto line = [&](auto&& cell_of) {
    std::string text(indent, ' ');
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = Shortened(cell_of(i), widths[i]);
      const std::string pad(widths[i] - Columns(cell), ' ');
      if (i != 0) text += std::string(kGap, ' ');
      text += columns_[i].align == Align::kRight ? pad + cell : cell + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  std::string text =
      PaintTitle(line([&](size_t i) -> const std::string& { return columns_[i].title; }));
  text += "\n";
  for (const auto& row : rows_) {
    text += line([&](size_t i) -> const std::string& { return row[i]; });
    text += "\n";
  }
  return text;
}

std::string Table::Render(size_t indent) const {
  return RenderWithin(DisplayOf(Stream::kStdout).width, indent);
}

std::string NamedTable::Render(size_t indent) const {
  Table table(columns_);
  const auto add = [&table](std::string name, const std::vector<std::string>& cells) {
    std::vector<std::string> row = {std::move(name)};
    row.insert(row.end(), cells.begin(), cells.end());
    table.AddRow(std::move(row));
  };
  if (rows_.size() <= kMostNamedRows) {
    for (const Row& row : rows_) add(Printable(row.name), row.cells);
    return table.Render(indent);
  }
  std::map<std::vector<std::string>, size_t> places;
  struct Alike {
    const std::vector<std::string>* cells = nullptr;
    std::vector<std::string_view> names;
  };
  std::vector<Alike> kinds;  // in the order of their first rows
  for (const Row& row : rows_) {
    const auto [place, is_new] = places.try_emplace(row.cells, kinds.size());
    if (is_new) kinds.push_back({.cells = &place->first, .names = {}});
    kinds[place->second].names.push_back(row.name);
  }
  for (const Alike& kind : kinds) {
    for (const NamePattern& pattern : FoldNames(kind.names)) {
      const std::string count = pattern.names == 1 ? "" : fmt::format(" ×{}", pattern.names);
      add(Printable(pattern.text) + count, *kind.cells);
    }
  }
  return table.Render(indent);
}

}  // namespace prepack::cli
