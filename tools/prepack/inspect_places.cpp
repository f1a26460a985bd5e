#include "inspect_places.h"
#include "prepack/base/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "json_reports.h"
#include "prepack/packed/scheme_json.h"
#include "table.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

constexpr uint64_t kDrawnBytes = 64;
constexpr size_t kDrawingGap = 4;  // columns between two drawings

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
    if (i < right.size())
      text += std::string(width - line.width + kDrawingGap, ' ') + right[i].text;
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
  // For a fused module, show the member that comes first.
  const auto show_source = [&](const OpenedFolder& origin, const DrawnModule& packed,
                               const ModuleRecord& record) {
    const bool is_fused = packed.module == module && !record.fused.empty();
    return DrawModule(origin, is_fused ? record.fused[0].module : module, kDrawnBytes);
  };
  PREPACK_TRY_ASSIGN(Sides<DrawnModule> sides,
                     ShowSides<DrawnModule>(path, source, show, show_source));
  return DrawnSides{.module = module, .sides = std::move(sides)};
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
  if (both && WidthOf(source) + kDrawingGap + WidthOf(packed) <= style.width) {
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

namespace prepack::cli {
namespace {

struct Span {
  uint64_t first = 0;
  uint64_t count = 0;
};

// "4:8" is 4, 5, 6, 7; ":8" and "4:" leave out an end.
Result<Span> ParseSpan(std::string_view option, const std::string& text) {
  const size_t colon = text.find(':');
  const std::optional<uint64_t> first = colon == 0 ? 0 : ParseCount(text.substr(0, colon));
  const bool is_open = colon + 1 == text.size();
  const std::optional<uint64_t> end = colon == std::string::npos ? std::nullopt
                                      : is_open ? std::numeric_limits<uint64_t>::max()
                                                : ParseCount(text.substr(colon + 1));
  if (first && end && *first < *end) return Span{.first = *first, .count = *end - *first};
  return Usage(option, "not a range").Found(text).Expected("FIRST:END, e.g. 0:16");
}

std::string ValueText(ValueKind kind, double value) {
  if (kind == ValueKind::kBytes) return fmt::format("{:02x}", static_cast<unsigned>(value));
  if (kind == ValueKind::kCodes) return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{:.5g}", value);
}

}  // namespace

Result<WeightValues> ValuesOf(const std::string& path, const std::string& module,
                              const std::string& rows, const std::string& cols, ValueKind kind) {
  PREPACK_TRY_ASSIGN(const Span n, ParseSpan("--rows", rows));
  PREPACK_TRY_ASSIGN(const Span k, ParseSpan("--cols", cols));
  PREPACK_TRY_ASSIGN(const OpenedFolder folder, OpenedFolder::Open(path));
  return ReadWeightValues(folder, module,
                          {.n0 = n.first, .rows = n.count, .k0 = k.first, .cols = k.count}, kind);
}

std::string ValuesText(const WeightValues& values) {
  std::vector<Table::Column> columns = {{"", Align::kRight}};
  for (uint64_t k = 0; k < values.range.cols; ++k) {
    columns.push_back({fmt::format("k{}", values.range.k0 + k), Align::kRight});
  }
  Table table(std::move(columns));
  for (uint64_t n = 0; n < values.range.rows; ++n) {
    std::vector<std::string> cells = {fmt::format("n{}", values.range.n0 + n)};
    for (uint64_t k = 0; k < values.range.cols; ++k) {
      cells.push_back(ValueText(values.kind, values.values[n * values.range.cols + k]));
    }
    table.AddRow(std::move(cells));
  }
  return fmt::format("{}: {}, {}\n{}", Printable(values.module), Printable(values.form),
                     ValueKindName(values.kind), table.Render(2));
}

Json ValuesJson(const std::string& path, const WeightValues& values) {
  Json json = JsonDocument("prepack-inspect-values");
  json["path"] = path;
  json["module"] = values.module;
  json["form"] = values.form;
  json["shows"] = ValueKindName(values.kind);
  json["rows"] = {values.range.n0, values.range.n0 + values.range.rows};
  json["cols"] = {values.range.k0, values.range.k0 + values.range.cols};
  Json& rows = json["values"] = Json::array();
  for (uint64_t n = 0; n < values.range.rows; ++n) {
    Json row = Json::array();
    for (uint64_t k = 0; k < values.range.cols; ++k) {
      const double value = values.values[n * values.range.cols + k];
      row.push_back(values.kind == ValueKind::kDecoded ? JsonNumber(value)
                                                       : Json(static_cast<int64_t>(value)));
    }
    rows.push_back(std::move(row));
  }
  return json;
}

std::string ArraysText(const ModuleArrays& arrays) {
  Table table({{"array"}, {"dtype"}, {"shape"}, {"file"}, {"offset", Align::kRight}, {""}});
  for (const ModuleArray& array : arrays.arrays) {
    table.AddRow({array.name, std::string(DTypeName(array.dtype)), ShapeText(array.shape),
                  Printable(array.file.string()), fmt::format("{}", array.offset),
                  array.in_place ? "as the folder holds it" : ""});
  }
  return fmt::format("{}: {}, {}\n{}", Printable(arrays.module), Printable(arrays.form),
                     DescribeScheme(arrays.scheme), table.Render(2));
}

Json ArraysJson(const std::string& path, const ModuleArrays& arrays) {
  Json json = JsonDocument("prepack-inspect-arrays");
  json["path"] = path;
  json["module"] = arrays.module;
  json["form"] = arrays.form;
  json["shape"] = {arrays.n, arrays.k};
  json["scheme"] = SchemeJson(arrays.scheme);
  Json& list = json["arrays"] = Json::array();
  for (const ModuleArray& array : arrays.arrays) {
    list.push_back({{"array", array.name},
                    {"dtype", DTypeName(array.dtype)},
                    {"shape", std::vector<uint64_t>(array.shape.begin(), array.shape.end())},
                    {"file", array.file.string()},
                    {"offset", array.offset},
                    {"in_place", array.in_place}});
  }
  return json;
}

}  // namespace prepack::cli

namespace prepack::cli {
namespace {

Result<uint64_t> ParseNumber(std::string_view option, const std::string& text) {
  if (const std::optional<uint64_t> value = ParseCount(text)) return *value;
  return Usage(option, "not a number").Found(text).Expected("0, 1, …, or hexadecimal: 0x1f");
}

// "bits 4-7", "bit 3"; of whole bytes "bytes 2" with how many.
std::string BitsText(uint32_t bit, uint32_t bits) {
  if (bit == 0 && bits == 8) return "whole";
  if (bit == 0 && bits == 4) return "low nibble";
  if (bit == 4 && bits == 4) return "high nibble";
  if (bit == 0 && bits % 8 == 0) return fmt::format("{} bytes", bits / 8);
  if (bits == 1) return fmt::format("bit {}", bit);
  return fmt::format("bits {}-{}", bit, bit + bits - 1);
}

std::string SideText(std::string_view title, const FoundWeight& found) {
  std::string text = fmt::format("\n{}: {}, {}", title, Printable(found.path), found.form);
  if (title == "packed") {
    text += fmt::format(", {} ({}, {})", Printable(found.module), found.n, found.position);
  }
  text += "\n";
  Table table({{""},
               {"value", Align::kRight},
               {"stored", Align::kRight},
               {"file"},
               {"byte", Align::kRight},
               {"of it"},
               {"tensor"},
               {"byte", Align::kRight}});
  for (const NumberInFile& number : found.numbers) {
    bool is_first = true;
    for (const BitsInFile& bits : number.where) {
      table.AddRow({is_first ? std::string(number.what) : "",
                    is_first ? fmt::format("{:g}", number.value) : "",
                    is_first ? fmt::format("0x{:x}", number.stored) : "", Printable(bits.file),
                    fmt::format("{}", bits.offset), BitsText(bits.bit, bits.bits),
                    Printable(bits.tensor), fmt::format("{}", bits.in_tensor)});
      is_first = false;
    }
  }
  return text + table.Render(2) + fmt::format("  weight {:g}\n", found.weight);
}

Json SideJson(const std::optional<FoundWeight>& found) {
  if (!found) return nullptr;
  Json numbers = Json::array();
  for (const NumberInFile& number : found->numbers) {
    Json where = Json::array();
    for (const BitsInFile& bits : number.where) {
      where.push_back({{"file", bits.file},
                       {"offset", bits.offset},
                       {"tensor", bits.tensor},
                       {"offset_in_tensor", bits.in_tensor},
                       {"bit", bits.bit},
                       {"bits", bits.bits}});
    }
    numbers.push_back({{"what", number.what},
                       {"value", JsonNumber(number.value)},
                       {"stored", number.stored},
                       {"where", std::move(where)}});
  }
  return {{"path", found->path},
          {"form", found->form},
          {"module", found->module},
          {"n", found->n},
          {"position", found->position},
          {"group", found->group},
          {"weight", JsonNumber(found->weight)},
          {"numbers", std::move(numbers)}};
}

std::string HeldText(const HeldNumber& number) {
  std::string text = number.rows == 1
                         ? fmt::format("n {}", number.n)
                         : fmt::format("n {} to {}", number.n, number.n + number.rows - 1);
  if (number.k) text += fmt::format(", k {}", *number.k);
  if (number.g) text += fmt::format(", group {}", *number.g);
  return text;
}

}  // namespace

Result<FoundSides> FindSides(const std::string& path, const std::string& source,
                             const std::vector<std::string>& wanted) {
  FoundSides found{.module = wanted.at(0)};
  PREPACK_TRY_ASSIGN(const uint64_t n, ParseNumber("--find", wanted.at(1)));
  PREPACK_TRY_ASSIGN(const uint64_t k, ParseNumber("--find", wanted.at(2)));
  found.n = n;
  found.k = k;
  const auto show = [&](const OpenedFolder& folder) {
    return FindWeight(folder, found.module, n, k);
  };
  // A packed module that was fused is several of the source: its own channel says which.
  const auto show_source = [&](const OpenedFolder& origin, const FoundWeight& packed,
                               const ModuleRecord& record) {
    std::string module = packed.module;
    uint64_t row = packed.n;
    for (const FusedMember& member : record.fused) {
      module = member.module;
      if (row < member.n) break;
      row -= member.n;
    }
    return FindWeight(origin, module, row, k);
  };
  PREPACK_TRY_ASSIGN(Sides<FoundWeight> sides,
                     ShowSides<FoundWeight>(path, source, show, show_source));
  found.sides = std::move(sides);
  return found;
}

Result<ByteContents> ContentsAt(const std::string& path, const std::string& wanted) {
  const size_t colon = wanted.rfind(':');
  if (colon == std::string::npos) {
    return Usage("--at", "the offset is missing").Found(wanted).Expected("FILE:OFFSET");
  }
  PREPACK_TRY_ASSIGN(const uint64_t offset, ParseNumber("--at", wanted.substr(colon + 1)));
  PREPACK_TRY_ASSIGN(const OpenedFolder folder, OpenedFolder::Open(path));
  return ReadByteContents(folder, wanted.substr(0, colon), offset);
}

std::string FoundText(const FoundSides& found) {
  const FoundWeight& any = found.sides.source ? *found.sides.source : *found.sides.packed;
  std::string text = fmt::format("{}: output channel {}, input channel {}, group {}\n",
                                 Printable(found.module), found.n, found.k, any.group);
  if (found.sides.source) text += SideText("source", *found.sides.source);
  if (found.sides.packed) text += SideText("packed", *found.sides.packed);
  if (!found.sides.source)
    text += "\nThe source is not where the manifest says: name it by --source\n";
  return text;
}

Json FoundJson(const std::string& path, const FoundSides& found) {
  Json json = JsonDocument("prepack-inspect-find");
  json["path"] = path;
  json["module"] = found.module;
  json["n"] = found.n;
  json["k"] = found.k;
  json["source"] = SideJson(found.sides.source);
  json["packed"] = SideJson(found.sides.packed);
  return json;
}

std::string ContentsText(const ByteContents& contents) {
  std::string text = fmt::format("{}, byte {}: 0x{:02x}, {}\n", Printable(contents.file),
                                 contents.offset, contents.byte, contents.holds);
  if (!contents.tensor) return text;
  const NamedTensor& tensor = *contents.tensor;
  text += fmt::format("  tensor {}, {} {}, byte {} of it, element [{}]\n", Printable(tensor.name),
                      DTypeName(tensor.dtype), ShapeText(tensor.shape),
                      contents.offset - tensor.offset, fmt::join(contents.element, ", "));
  if (!contents.module.empty()) {
    text += fmt::format("  module {}, {}\n", Printable(contents.module), Printable(contents.form));
  }
  for (const HeldNumber& number : contents.numbers) {
    const uint32_t stored = contents.byte >> number.bit & ((1U << number.bits) - 1);
    text += fmt::format("  {:<11}  0x{:x}  {} of {}\n", BitsText(number.bit, number.bits), stored,
                        contents.holds, HeldText(number));
  }
  return text;
}

Json ContentsJson(const std::string& path, const ByteContents& contents) {
  Json json = JsonDocument("prepack-inspect-at");
  json["path"] = path;
  json["file"] = contents.file;
  json["offset"] = contents.offset;
  json["byte"] = contents.byte;
  json["holds"] = contents.holds;
  json["module"] = contents.module.empty() ? Json(nullptr) : Json(contents.module);
  json["form"] = contents.form.empty() ? Json(nullptr) : Json(contents.form);
  json["tensor"] = nullptr;
  if (contents.tensor) {
    const NamedTensor& tensor = *contents.tensor;
    json["tensor"] = {{"name", tensor.name},
                      {"dtype", DTypeName(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"offset_in_tensor", contents.offset - tensor.offset},
                      {"element", contents.element}};
  }
  Json& numbers = json["numbers"] = Json::array();
  for (const HeldNumber& number : contents.numbers) {
    numbers.push_back({{"n", number.n},
                       {"channels", number.rows},
                       {"k", number.k ? Json(*number.k) : Json(nullptr)},
                       {"group", number.g ? Json(*number.g) : Json(nullptr)},
                       {"bit", number.bit},
                       {"bits", number.bits}});
  }
  return json;
}

}  // namespace prepack::cli
