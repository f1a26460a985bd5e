// The page of `inspect --html`.

#include "prepack/inspect/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "prepack/base/text.h"
#include "prepack/inspect/summary.h"
#include "prepack/report/charts.h"
#include "prepack/report/page.h"
#include "prepack/report/table.h"

namespace prepack {
namespace {

HtmlCell CountCell(uint64_t count) {
  return {.text = fmt::format("{}", count), .order = static_cast<double>(count)};
}

HtmlCell BytesCell(uint64_t bytes) {
  return {.text = HumanBytes(bytes), .order = static_cast<double>(bytes)};
}

HtmlCell BitsCell(double bits) {
  return {.text = fmt::format("{:.2f}", bits), .order = bits};
}

HtmlCell LayoutCell(const std::string& layout) {
  return {.text = layout.empty() ? "as stored" : layout};
}

std::string FolderHeadHtml(const InspectReport& report) {
  const PackedOrigin origin = report.origin.value_or(PackedOrigin());
  return fmt::format(
      "<h1>prepack inspect: {}</h1>\n{}",
      HtmlToned(report.unreadable ? Tone::kUnsure : Tone::kPlain, FolderKindName(report.kind)),
      HtmlFacts(
          {{"Path", report.path},
           {"Format", report.format},
           {"Packed for", report.target},
           {"Quantized modules", fmt::format("{}", report.modules.size())},
           {"Tensors",
            fmt::format("{}, {}", report.tensors.size(), HumanBytes(report.tensor_bytes))},
           {"Files", fmt::format("{}", report.files.size())},
           {"Not described", report.unreadable ? report.unreadable->ToString() : ""},
           {"Made by", report.origin ? fmt::format("prepack {}", origin.prepack_version) : ""},
           {"Source", origin.source_path},
           {"Model of the hub", origin.source_hub ? origin.source_hub->Text() : ""},
           {"Fingerprint of the source", origin.source_fingerprint},
           {"Activations", origin.activation_dtype},
           {"Options", origin.options}}));
}

std::string SchemesHtml(const InspectReport& report) {
  std::vector<HtmlRow> rows;
  for (const SchemeUse& use : UseOfSchemes(report)) {
    rows.push_back({{.text = DescribeScheme(use.scheme)},
                    LayoutCell(use.layout),
                    CountCell(use.modules),
                    CountCell(use.weights),
                    BytesCell(use.bytes),
                    BitsCell(use.BitsPerWeight())});
  }
  for (const DTypeUse& use : TensorsOutsideModules(report)) {
    const bool is_packed = report.kind == FolderKind::kPacked;
    rows.push_back(
        {{.text = fmt::format("{} of {}", Plural(use.tensors, "tensor"), DTypeName(use.dtype))},
         {.text = is_packed ? "not packed" : "not quantized"},
         {},
         {},
         BytesCell(use.bytes),
         {}});
  }
  return PlainTable({{"scheme"},
                     {"layout"},
                     {"modules", true},
                     {"weights", true},
                     {"size", true},
                     {"bits/weight", true}},
                    rows);
}

std::string LeftHtml(const InspectReport& report) {
  std::vector<std::string> sentences;
  for (const TargetUse& use : report.targets) {
    for (const LeftModules& left : use.left) {
      sentences.push_back(fmt::format("{} would leave {} as stored: {}", use.target,
                                      Plural(left.modules, "module"), left.why));
    }
  }
  return HtmlList(sentences);
}

std::string TargetsHtml(const InspectReport& report) {
  std::vector<HtmlRow> rows;
  for (const TargetUse& use : report.targets) {
    std::vector<std::string> layouts;
    for (const auto& [layout, modules] : use.layouts) {
      layouts.push_back(fmt::format("{} × {}", modules, layout));
    }
    rows.push_back({{.text = use.target},
                    {.text = fmt::format("{} of {}", use.packed, use.modules),
                     .tone = use.packed == 0 ? Tone::kUnsure : Tone::kPlain},
                    {.text = fmt::format("{}", fmt::join(layouts, ", "))},
                    use.packed == 0 ? HtmlCell{.text = "-"} : BytesCell(use.output_bytes),
                    use.packed == 0 ? HtmlCell{.text = "-"} : BitsCell(use.BitsPerWeight())});
  }
  return PlainTable(
      {{"target"}, {"would pack"}, {"layouts"}, {"output", true}, {"bits/weight", true}}, rows);
}

// In a unit that suits the largest module, so that numbers fit beside the axis.
DepthChart SizeChart(const std::vector<ModuleSummary>& modules) {
  uint64_t largest = 0;
  for (const ModuleSummary& module : modules) largest = std::max(largest, module.bytes);
  const bool is_small = largest < 1'000'000;
  DepthChart chart = {
      .caption = "Size of every module", .unit = is_small ? "kB" : "MB", .points = {}, .bars = {}};
  for (const ModuleSummary& module : modules) {
    chart.points.push_back(
        {std::string(module.module), static_cast<double>(module.bytes) / (is_small ? 1e3 : 1e6)});
  }
  return chart;
}

std::string ChartsHtml(const InspectReport& report) {
  DepthChart bits = {.caption = "Bits per weight of every module, scales and zero points included",
                     .unit = "bits",
                     .points = {},
                     .bars = {}};
  for (const ModuleSummary& module : report.modules) {
    bits.points.push_back({std::string(module.module), module.BitsPerWeight()});
  }
  return DepthChartSvg(SizeChart(report.modules)) + DepthChartSvg(bits);
}

// `names` of them are alike.
HtmlRow ModuleRow(const std::string& name, uint64_t names, const ModuleSummary& like) {
  return {{.text = name},
          CountCell(like.n),
          CountCell(like.k),
          {.text = DescribeScheme(like.scheme)},
          LayoutCell(std::string(like.layout)),
          BytesCell(names * like.bytes),
          BitsCell(like.BitsPerWeight())};
}

// Rows along the depth of the model. If there are very many, similar ones are folded into one row,
// and the second column says how many. `row_of(name, how many, like)` returns the other cells.
template <typename Folded, typename Thing, typename RowOf>
std::string ThingsHtml(const std::vector<Thing>& things,
                       const std::function<std::vector<Folded>()>& fold,
                       std::vector<HtmlColumn> columns, const RowOf& row_of) {
  std::vector<HtmlRow> rows;
  if (things.size() > kMostTableRows) {
    columns.insert(columns.begin() + 1, {.title = "how many", .number = true});
    for (const Folded& folded : fold()) {
      const NamePattern& names = folded.names;
      rows.push_back(row_of(names.text, names.names, *folded.like));
      rows.back().insert(rows.back().begin() + 1, CountCell(names.names));
    }
  } else {
    std::vector<std::string> names;
    names.reserve(things.size());
    for (const Thing& thing : things) names.emplace_back(NameOf(thing));
    for (const size_t i : DepthOrder(names)) rows.push_back(row_of(names[i], 1, things[i]));
  }
  return SortableTable(columns, rows);
}

std::string ModulesHtml(const InspectReport& report) {
  return ThingsHtml<FoldedModules>(
      report.modules, [&] { return FoldModules(report); },
      {{"module"},
       {"N", true},
       {"K", true},
       {"scheme"},
       {"layout"},
       {"size", true},
       {"bits/weight", true}},
      ModuleRow);
}

std::string TensorsHtml(const InspectReport& report) {
  return ThingsHtml<FoldedTensors>(
      report.tensors, [&] { return FoldTensors(report); },
      {{"tensor"}, {"dtype"}, {"shape"}, {"size", true}, {"file"}, {"offset", true}},
      [&](const std::string& name, uint64_t names, const StoredTensor* stored) {
        const StoredTensor& like = *stored;
        const bool is_one = names == 1;
        return HtmlRow{{.text = name},
                       {.text = std::string(DTypeName(like.dtype))},
                       {.text = fmt::format("{}", fmt::join(like.shape, " × "))},
                       BytesCell(names * like.bytes),
                       {.text = is_one ? report.files[like.file].name : ""},
                       is_one ? CountCell(like.offset) : HtmlCell{}};
      });
}

std::string NotesHtml(const InspectReport& report) {
  std::vector<std::string> sentences;
  for (const Finding& finding : report.findings) {
    std::string text =
        fmt::format("{}: {}: {}", SeverityName(finding.severity), finding.where, finding.message);
    if (finding.more != 0) text += fmt::format(" (and {} more like it)", finding.more);
    sentences.push_back(std::move(text));
  }
  return HtmlList(sentences);
}

}  // namespace

std::string InspectHtml(const InspectReport& report) {
  return HtmlPage(
      fmt::format("prepack inspect: {}", report.path),
      FolderHeadHtml(report) + HtmlSection("Findings", NotesHtml(report)) +
          HtmlSection("Schemes", SchemesHtml(report)) +
          HtmlSection("What each target would take", TargetsHtml(report) + LeftHtml(report)) +
          HtmlSection("Along the depth of the model", ChartsHtml(report)) +
          HtmlSection("Modules", ModulesHtml(report)) +
          HtmlFoldedSection("Tensors", TensorsHtml(report)));
}

}  // namespace prepack
