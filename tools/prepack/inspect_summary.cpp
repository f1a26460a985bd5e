#include "inspect_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "json_reports.h"
#include "prepack/inspect/summary.h"
#include "prepack/inspect/weight_values.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/report/charts.h"
#include "table.h"

namespace prepack::cli {
namespace {

using Counts = std::array<uint64_t, 256>;

constexpr size_t kMostBins = 32;
constexpr size_t kMostFrequent = 3;
constexpr size_t kWidestBar = 50;
constexpr size_t kNarrowestBar = 10;
constexpr size_t kIndent = 2;
constexpr size_t kBetween = 2;  // columns, of a table

struct CodeBin {
  uint8_t first = 0;
  uint8_t last = 0;
  uint64_t count = 0;
};

// Codes in the order of their values, as many to a bin as it takes for there to be few.
std::vector<CodeBin> BinsOf(const Scheme& scheme, const Counts& counts) {
  const std::vector<uint8_t> codes = CodesOf(scheme);
  const size_t each = CeilDiv(codes.size(), kMostBins);
  std::vector<CodeBin> bins;
  for (size_t i = 0; i < codes.size(); ++i) {
    if (i % each == 0) bins.push_back({.first = codes[i]});
    bins.back().last = codes[i];
    bins.back().count += counts[codes[i]];
  }
  return bins;
}

std::string BinText(const Scheme& scheme, const CodeBin& bin) {
  const std::array<float, 256>& values = CodeValues(scheme.code);
  if (bin.first == bin.last) return fmt::format("{:g}", values[bin.first]);
  return fmt::format("{:.4g}..{:.4g}", values[bin.first], values[bin.last]);
}

// A bar of `eighths` eighths of a column.
std::string Bar(uint64_t eighths, bool unicode) {
  static constexpr std::array<std::string_view, 8> kParts = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!unicode) return std::string((eighths + 4) / 8, '#');
  std::string bar;
  for (uint64_t i = 0; i < eighths / 8; ++i) bar += "█";
  return bar += kParts[eighths % 8];
}

std::string Percent(uint64_t count, uint64_t all) {
  return fmt::format("{:.2f} %", 100 * static_cast<double>(count) / static_cast<double>(all));
}

// Columns for the longest bar: what a line has left, within reason.
double BarWidth(const std::vector<std::array<std::string, 3>>& cells, size_t width) {
  size_t taken = kIndent;
  for (size_t column = 0; column < 3; ++column) {
    size_t widest = 0;
    for (const auto& row : cells) widest = std::max(widest, row[column].size());
    taken += widest + kBetween;
  }
  const size_t room = width > taken ? width - taken : 0;
  return static_cast<double>(std::clamp(room, kNarrowestBar, kWidestBar));
}

std::string CodesText(const ModuleNumbers& numbers, const DrawingStyle& style) {
  const std::vector<CodeBin> bins = BinsOf(numbers.scheme, *numbers.codes);
  const uint64_t most = std::max<uint64_t>(1, std::ranges::max(bins, {}, &CodeBin::count).count);
  const bool is_float = IsFloatCode(numbers.scheme.code);
  std::vector<std::array<std::string, 3>> cells;
  cells.reserve(bins.size());
  for (const CodeBin& bin : bins) {
    cells.push_back({BinText(numbers.scheme, bin), fmt::format("{}", bin.count),
                     Percent(bin.count, numbers.n * numbers.k)});
  }
  const double width = BarWidth(cells, style.width);
  Table table({{is_float ? "value" : "code", Align::kRight},
               {"count", Align::kRight},
               {"share", Align::kRight},
               {""}});
  for (size_t i = 0; i < bins.size(); ++i) {
    const double share = static_cast<double>(bins[i].count) / static_cast<double>(most);
    table.AddRow({cells[i][0], cells[i][1], cells[i][2],
                  Bar(static_cast<uint64_t>(std::llround(8 * width * share)), style.unicode)});
  }
  return fmt::format("\n{}", table.Render(kIndent));
}

// Values with their counts, the most frequent first; of equal ones the lower first.
std::vector<size_t> MostFrequent(const Counts& counts) {
  std::vector<size_t> values;
  for (size_t value = 0; value < counts.size(); ++value) {
    if (counts[value] != 0) values.push_back(value);
  }
  std::ranges::stable_sort(values, std::ranges::greater(),
                           [&](size_t value) { return counts[value]; });
  return values;
}

struct ZeroPointRange {
  uint64_t count = 0;
  size_t min = 0;
  size_t max = 0;
};

ZeroPointRange RangeOf(const Counts& counts) {
  ZeroPointRange range;
  for (size_t value = 0; value < counts.size(); ++value) {
    if (counts[value] == 0) continue;
    if (range.count == 0) range.min = value;
    range.max = value;
    range.count += counts[value];
  }
  return range;
}

std::string ZeroPointsText(const Counts& counts) {
  const ZeroPointRange range = RangeOf(counts);
  std::string text = fmt::format("{}, {} to {}; most frequent", range.count, range.min, range.max);
  const std::vector<size_t> frequent = MostFrequent(counts);
  for (size_t i = 0; i < std::min(kMostFrequent, frequent.size()); ++i) {
    text += fmt::format("{} {} ({})", i == 0 ? "" : ",", frequent[i],
                        Percent(counts[frequent[i]], range.count));
  }
  return text;
}

uint64_t UsedCodes(const Counts& counts) {
  return static_cast<uint64_t>(
      std::ranges::count_if(counts, [](uint64_t count) { return count != 0; }));
}

Json CodesJson(const ModuleNumbers& numbers) {
  const std::array<float, 256>& values = CodeValues(numbers.scheme.code);
  Json json = Json::array();
  for (const uint8_t code : CodesOf(numbers.scheme)) {
    json.push_back({{"code", CodeNumber(numbers.scheme.code, code)},
                    {"value", values[code]},
                    {"count", (*numbers.codes)[code]}});
  }
  return json;
}

Json ScalesJson(const ScaleNumbers& scales) {
  return {{"count", scales.count},
          {"min", JsonNumber(scales.min)},
          {"median", JsonNumber(scales.median)},
          {"max", JsonNumber(scales.max)},
          {"zero", scales.zero},
          {"negative", scales.negative}};
}

Json ZeroPointsJson(const Counts& counts) {
  const ZeroPointRange range = RangeOf(counts);
  Json values = Json::array();
  for (const size_t value : MostFrequent(counts)) {
    values.push_back({{"value", value}, {"count", counts[value]}});
  }
  return {{"count", range.count},
          {"min", range.min},
          {"max", range.max},
          {"values", std::move(values)}};
}

}  // namespace

std::string NumbersText(const ModuleNumbers& numbers, const DrawingStyle& style) {
  std::string text = fmt::format("\n  weights      {}, {:.5g} to {:.5g}\n", numbers.n * numbers.k,
                                 numbers.min_weight, numbers.max_weight);
  if (numbers.scales) {
    const ScaleNumbers& scales = *numbers.scales;
    text += fmt::format(
        "  scales       {}, {:.5g} to {:.5g}, median {:.5g}; {} zero, {} negative\n", scales.count,
        scales.min, scales.max, scales.median, scales.zero, scales.negative);
  }
  if (numbers.zero_points) {
    text += fmt::format("  zero points  {}\n", ZeroPointsText(*numbers.zero_points));
  }
  if (!numbers.codes) return text;
  text += fmt::format("  groups       {} of {} input channels{}\n", numbers.groups(),
                      numbers.scheme.group_size,
                      numbers.reordered ? ", in activation order" : ", in their own order");
  text += fmt::format("  codes        {} of {} used\n", UsedCodes(*numbers.codes),
                      CodesOf(numbers.scheme).size());
  return text + CodesText(numbers, style);
}

Json NumbersJson(std::string_view module, const ModuleNumbers& numbers) {
  return {
      {"module", module},
      {"shape", {numbers.n, numbers.k}},
      {"weights", numbers.n * numbers.k},
      {"min_weight", JsonNumber(numbers.min_weight)},
      {"max_weight", JsonNumber(numbers.max_weight)},
      {"group_size", numbers.codes ? Json(numbers.scheme.group_size) : Json(nullptr)},
      {"activation_order", numbers.reordered},
      {"codes_used", numbers.codes ? Json(UsedCodes(*numbers.codes)) : Json(nullptr)},
      {"codes", numbers.codes ? CodesJson(numbers) : Json(nullptr)},
      {"scales", numbers.scales ? ScalesJson(*numbers.scales) : Json(nullptr)},
      {"zero_points", numbers.zero_points ? ZeroPointsJson(*numbers.zero_points) : Json(nullptr)}};
}

}  // namespace prepack::cli

namespace prepack::cli {
namespace {

constexpr size_t kLongestText = 1000;  // patterns and reasons; names are shorter

std::string BitsText(double bits) {
  return fmt::format("{:.2f}", bits);
}

std::string FolderText(const InspectReport& report) {
  std::string text = fmt::format("{}: {}", Printable(report.path), FolderKindName(report.kind));
  if (!report.format.empty()) text += fmt::format(", {}", Printable(report.format));
  if (!report.target.empty()) text += fmt::format(", packed for {}", Printable(report.target));
  text += fmt::format("\n{}, {}, in {}", Plural(report.tensors.size(), "tensor"),
                      HumanBytes(report.tensor_bytes), Plural(report.files.size(), "file"));
  if (!report.modules.empty()) {
    text += fmt::format("; {}", Plural(report.modules.size(), "quantized module"));
  }
  text += "\n";
  if (!report.origin) return text;
  const PackedOrigin& origin = *report.origin;
  text +=
      fmt::format("made by prepack {} from {} fingerprint {}\n", Printable(origin.prepack_version),
                  origin.source_path.empty() ? "a source that is not named:"
                                             : Printable(origin.source_path) + ",",
                  Printable(origin.source_fingerprint));
  if (origin.source_hub) text += fmt::format("the source is {}\n", origin.source_hub->Text());
  return text;
}

std::string SchemesText(const InspectReport& report) {
  Table table({{"scheme"},
               {"layout"},
               {"modules", Align::kRight},
               {"weights", Align::kRight},
               {"size", Align::kRight},
               {"bits/weight", Align::kRight}});
  for (const SchemeUse& use : UseOfSchemes(report)) {
    table.AddRow({DescribeScheme(use.scheme), LayoutText(use.layout),
                  fmt::format("{}", use.modules), HumanCount(use.weights), HumanBytes(use.bytes),
                  BitsText(use.BitsPerWeight())});
  }
  return table.empty() ? "" : fmt::format("\n{}", table.Render(2));
}

// "not quantized: 4 tensors of BF16, 1.2 MB", a line for each dtype.
std::string OtherTensorsText(const InspectReport& report) {
  const std::string_view what = report.modules.empty()               ? ""
                                : report.kind == FolderKind::kPacked ? "not packed: "
                                                                     : "not quantized: ";
  std::string text;
  for (const DTypeUse& use : TensorsOutsideModules(report)) {
    text += fmt::format("  {}{} of {}, {}\n", what, Plural(use.tensors, "tensor"),
                        DTypeName(use.dtype), HumanBytes(use.bytes));
  }
  return text;
}

std::string LayoutsText(const TargetUse& use) {
  std::string text;
  for (const auto& [layout, modules] : use.layouts) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", layout);
    if (use.layouts.size() > 1) text += fmt::format(" ×{}", modules);
  }
  return text.empty() ? "-" : text;
}

std::string TargetsText(const InspectReport& report) {
  if (report.targets.empty()) return "";
  Table table({{"target"},
               {"would pack", Align::kRight},
               {"layouts"},
               {"output", Align::kRight},
               {"bits/weight", Align::kRight}});
  std::string left;
  for (const TargetUse& use : report.targets) {
    table.AddRow({use.target, fmt::format("{} of {}", use.packed, use.modules), LayoutsText(use),
                  use.packed == 0 ? "-" : HumanBytes(use.output_bytes),
                  use.packed == 0 ? "-" : BitsText(use.BitsPerWeight())});
    for (const LeftModules& modules : use.left) {
      left += fmt::format("  {} would leave {} as stored: {}\n", use.target,
                          Plural(modules.modules, "module"), Printable(modules.why, kLongestText));
    }
  }
  return fmt::format("\n{}{}", table.Render(2), left);
}

Table ModulesTable() {
  return Table({{"module"},
                {""},
                {"N", Align::kRight},
                {"K", Align::kRight},
                {"scheme"},
                {"layout"},
                {"size", Align::kRight},
                {"bits/weight", Align::kRight}});
}

// `names` of them are alike.
void AddModules(const std::string& text, size_t names, const ModuleSummary& like, Table& table) {
  table.AddRow({Printable(text, kLongestText), names == 1 ? "" : fmt::format("×{}", names),
                fmt::format("{}", like.n), fmt::format("{}", like.k), DescribeScheme(like.scheme),
                LayoutText(like.layout), HumanBytes(names * like.bytes),
                BitsText(like.BitsPerWeight())});
}

}  // namespace

std::string LayoutText(std::string_view layout) {
  return layout.empty() ? "as stored" : Printable(layout);
}

std::string SummaryText(const InspectReport& report) {
  return FolderText(report) + SchemesText(report) + OtherTensorsText(report) + TargetsText(report);
}

std::string FoldedModulesText(const InspectReport& report) {
  Table table = ModulesTable();
  for (const FoldedModules& modules : FoldModules(report)) {
    AddModules(modules.names.text, modules.names.names, *modules.like, table);
  }
  return table.empty() ? "" : fmt::format("\n{}", table.Render(2));
}

std::string AllModulesText(const InspectReport& report) {
  std::vector<std::string> names;
  for (const ModuleSummary& module : report.modules) names.emplace_back(module.module);
  Table table = ModulesTable();
  for (const size_t i : DepthOrder(names)) AddModules(names[i], 1, report.modules[i], table);
  return table.empty() ? "" : fmt::format("\n{}", table.Render(2));
}

Json OriginJson(const InspectReport& report) {
  if (!report.origin) return nullptr;
  const PackedOrigin& origin = *report.origin;
  return {{"prepack_version", origin.prepack_version},
          {"source_path", origin.source_path},
          {"source_hub", origin.source_hub ? Json{{"name", origin.source_hub->name},
                                                  {"commit", origin.source_hub->commit}}
                                           : Json(nullptr)},
          {"source_fingerprint", origin.source_fingerprint},
          {"activation_dtype", origin.activation_dtype},
          {"options", origin.options}};
}

Json SummaryJson(const InspectReport& report) {
  Json schemes = Json::array();
  for (const SchemeUse& use : UseOfSchemes(report)) {
    schemes.push_back({{"description", DescribeScheme(use.scheme)},
                       {"activations", DescribeActivations(use.scheme.activations)},
                       {"layout", use.layout.empty() ? Json(nullptr) : Json(use.layout)},
                       {"modules", use.modules},
                       {"weights", use.weights},
                       {"bytes", use.bytes},
                       {"bits_per_weight", use.BitsPerWeight()}});
  }
  Json others = Json::array();
  for (const DTypeUse& use : TensorsOutsideModules(report)) {
    others.push_back(
        {{"dtype", DTypeName(use.dtype)}, {"tensors", use.tensors}, {"bytes", use.bytes}});
  }
  Json targets = Json::array();
  for (const TargetUse& use : report.targets) {
    Json left = Json::array();
    for (const LeftModules& modules : use.left) {
      left.push_back(
          {{"modules", modules.modules}, {"first", modules.first}, {"why", modules.why}});
    }
    targets.push_back({{"target", use.target},
                       {"modules", use.modules},
                       {"packed_modules", use.packed},
                       {"layouts", use.layouts.empty() ? Json::object() : Json(use.layouts)},
                       {"left", std::move(left)},
                       {"module_bytes", use.module_bytes},
                       {"bits_per_weight", use.BitsPerWeight()},
                       {"output_bytes", use.output_bytes}});
  }
  return {{"schemes", std::move(schemes)},
          {"other_tensors", std::move(others)},
          {"targets", std::move(targets)}};
}

}  // namespace prepack::cli
