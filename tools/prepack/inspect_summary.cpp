#include "inspect_summary.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "html/depth_order.h"
#include "inspect/summary.h"
#include "table.h"
#include "units.h"

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
  return text + fmt::format("made by prepack {} from {} fingerprint {}\n",
                            Printable(origin.prepack_version),
                            origin.source_path.empty() ? "a source that is not named:"
                                                       : Printable(origin.source_path) + ",",
                            Printable(origin.source_fingerprint));
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
  for (const ModuleSummary& module : report.modules) names.push_back(module.module);
  Table table = ModulesTable();
  for (const size_t i : DepthOrder(names)) AddModules(names[i], 1, report.modules[i], table);
  return table.empty() ? "" : fmt::format("\n{}", table.Render(2));
}

Json OriginJson(const InspectReport& report) {
  if (!report.origin) return nullptr;
  const PackedOrigin& origin = *report.origin;
  return {{"prepack_version", origin.prepack_version},
          {"source_path", origin.source_path},
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
