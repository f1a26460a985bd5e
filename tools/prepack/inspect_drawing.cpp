#include "inspect_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "json_reports.h"
#include "terminal.h"
#include "units.h"

namespace prepack::cli {
namespace {

constexpr uint64_t kDrawnBytes = 64;
constexpr size_t kGap = 4;  // columns between two drawings

// A line of a drawing: its text, which may have colours, and how many columns it takes.
struct DrawnLine {
  std::string text;
  size_t width = 0;
};

// Neighbouring output channels differ; those eight apart look alike.
std::string Paint(const WeightCell& cell, const std::string& text) {
  static constexpr std::array<int, 8> kColours = {31, 32, 33, 34, 35, 36, 91, 94};
  if (!cell) return text;
  return fmt::format("\x1b[{}m{}\x1b[0m", kColours[cell->n % kColours.size()], text);
}

std::vector<DrawnLine> Lines(std::string_view title, const DrawnModule& drawn, bool colour) {
  std::string text = fmt::format("{}: {}, {}\n{}", title, Printable(drawn.path),
                                 Printable(drawn.form), Printable(drawn.tensor));
  if (drawn.first != 0) text += fmt::format(" from its byte {} on", drawn.first);
  text += "\n";
  const std::vector<uint64_t> rows = ConsecutiveRows(drawn.cells.size());
  const PaintCell paint = colour
                              ? PaintCell([](const WeightCell& cell, const std::string& cell_text) {
                                  return Paint(cell, cell_text);
                                })
                              : PaintCell();
  if (!rows.empty()) text += DrawCells(drawn.cells, drawn.cell_bits, rows, paint);
  std::vector<DrawnLine> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::string line = text.substr(begin, end - begin);
    const size_t width = Columns(line);
    lines.push_back({.text = std::move(line), .width = width});
    begin = end + 1;
  }
  return lines;
}

size_t WidthOf(const std::vector<DrawnLine>& lines) {
  return lines.empty() ? 0 : std::ranges::max(lines, {}, &DrawnLine::width).width;
}

std::string SideBySide(const std::vector<DrawnLine>& left, const std::vector<DrawnLine>& right) {
  const size_t width = WidthOf(left);
  std::string text;
  for (size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const DrawnLine line = i < left.size() ? left[i] : DrawnLine();
    text += line.text;
    if (i < right.size()) text += std::string(width - line.width + kGap, ' ') + right[i].text;
    text += '\n';
  }
  return text;
}

Json SideJson(const std::optional<DrawnModule>& drawn) {
  if (!drawn) return nullptr;
  Json cells = Json::array();
  for (const WeightCell& cell : drawn->cells) {
    cells.push_back(cell ? Json{cell->n, cell->k} : Json(nullptr));
  }
  return {{"path", drawn->path},
          {"form", drawn->form},
          {"module", drawn->module},
          {"tensor", drawn->tensor},
          {"offset_in_tensor", drawn->first},
          {"cell_bits", drawn->cell_bits},
          {"cells", std::move(cells)}};
}

}  // namespace

Result<DrawnSides> DrawSides(const std::string& path, const std::string& source,
                             const std::string& module) {
  const auto show = [&](const OpenedFolder& folder) {
    return DrawModule(folder, module, kDrawnBytes);
  };
  // Of a fused module, the one that comes first.
  const auto show_source = [&](const OpenedFolder& origin, const DrawnModule& packed,
                               const ModuleRecord& record) {
    const bool is_fused = packed.module == module && !record.fused.empty();
    return DrawModule(origin, is_fused ? record.fused.front().module : module, kDrawnBytes);
  };
  Result<Sides<DrawnModule>> sides = ShowSides<DrawnModule>(path, source, show, show_source);
  if (!sides.ok()) return sides.status();
  return DrawnSides{.module = module, .sides = *std::move(sides)};
}

DrawingStyle StyleOfTerminal() {
  DrawingStyle style;
  const Display& display = DisplayOf(Stream::kStdout);
  style.colour = display.colour;
  style.unicode = display.is_terminal && display.unicode;
  const char* columns = std::getenv("COLUMNS");
  if (display.width != 0) {
    style.width = display.width;
  } else if (columns != nullptr) {
    style.width = ParseCount(columns).value_or(style.width);
  }
  return style;
}

std::string DrawingText(const DrawnSides& drawn, const DrawingStyle& style) {
  std::vector<DrawnLine> source;
  std::vector<DrawnLine> packed;
  if (drawn.sides.source) source = Lines("source", *drawn.sides.source, style.colour);
  if (drawn.sides.packed) packed = Lines("packed", *drawn.sides.packed, style.colour);
  const bool both = !source.empty() && !packed.empty();
  if (both && WidthOf(source) + kGap + WidthOf(packed) <= style.width) {
    return SideBySide(source, packed);
  }
  return SideBySide(source, {}) + (both ? "\n" : "") + SideBySide(packed, {});
}

Json DrawingJson(const std::string& path, const DrawnSides& drawn) {
  Json json = JsonDocument("prepack-inspect-layout");
  json["path"] = path;
  json["module"] = drawn.module;
  json["source"] = SideJson(drawn.sides.source);
  json["packed"] = SideJson(drawn.sides.packed);
  return json;
}

}  // namespace prepack::cli
