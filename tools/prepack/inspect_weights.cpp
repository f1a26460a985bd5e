#include "inspect_weights.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "json_reports.h"
#include "table.h"
#include "units.h"

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
  const Result<Span> n = ParseSpan("--rows", rows);
  if (!n.ok()) return n.status();
  const Result<Span> k = ParseSpan("--cols", cols);
  if (!k.ok()) return k.status();
  const Result<OpenedFolder> folder = OpenedFolder::Open(path);
  if (!folder.ok()) return folder.status();
  return ReadWeightValues(
      *folder, module, {.n0 = n->first, .rows = n->count, .k0 = k->first, .cols = k->count}, kind);
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

}  // namespace prepack::cli
