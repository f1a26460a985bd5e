#include "inspect/report_html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

#include "html/depth_chart.h"
#include "html/depth_order.h"
#include "html/page.h"
#include "html/table.h"
#include "inspect/summary.h"

namespace prepack {
namespace {

// More rows than that are folded; a browser takes seconds for them.
constexpr size_t kMostRows = 10'000;

HtmlCell CountCell(uint64_t count) {
  return {.text = fmt::format("{}", count), .order = static_cast<double>(count)};
}

HtmlCell BytesCell(uint64_t bytes) {
  constexpr double kMega = 1e6;
  const auto value = static_cast<double>(bytes);
  return {.text = value < 1e5 ? fmt::format("{:.1f} kB", value / 1e3)
                              : fmt::format("{:.1f} MB", value / kMega),
          .order = value};
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
           {"Tensors", fmt::format("{}, {} bytes", report.tensors.size(), report.tensor_bytes)},
           {"Files", fmt::format("{}", report.files.size())},
           {"Not described", report.unreadable ? report.unreadable->ToString() : ""},
           {"Made by", report.origin ? fmt::format("prepack {}", origin.prepack_version) : ""},
           {"Source", origin.source_path},
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
    rows.push_back({{.text = fmt::format("{} tensors of {} that no module has", use.tensors,
                                         DTypeName(use.dtype))},
                    LayoutCell(""),
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

HtmlCell LeftCell(const TargetUse& use) {
  std::vector<std::string> reasons;
  for (const LeftModules& left : use.left) {
    reasons.push_back(fmt::format("{} left as stored: {}", left.modules, left.why));
  }
  return {.text = fmt::format("{}", fmt::join(reasons, "; ")),
          .tone = use.packed == 0 ? Tone::kUnsure : Tone::kPlain};
}

std::string TargetsHtml(const InspectReport& report) {
  std::vector<HtmlRow> rows;
  for (const TargetUse& use : report.targets) {
    std::vector<std::string> layouts;
    for (const auto& [layout, modules] : use.layouts) {
      layouts.push_back(fmt::format("{} × {}", modules, layout));
    }
    rows.push_back({{.text = use.target},
                    {.text = fmt::format("{} of {}", use.packed, use.modules)},
                    {.text = fmt::format("{}", fmt::join(layouts, ", "))},
                    use.packed == 0 ? HtmlCell{.text = "-"} : BytesCell(use.output_bytes),
                    use.packed == 0 ? HtmlCell{.text = "-"} : BitsCell(use.BitsPerWeight()),
                    LeftCell(use)});
  }
  return PlainTable({{"target"},
                     {"would pack"},
                     {"layouts"},
                     {"output", true},
                     {"bits/weight", true},
                     {"the rest, and why"}},
                    rows);
}

std::string ChartsHtml(const InspectReport& report) {
  DepthChart size = {.caption = "Size of every module", .unit = "MB", .points = {}, .bars = {}};
  DepthChart bits = {.caption = "Bits per weight of every module, scales and zero points included",
                     .unit = "bits",
                     .points = {},
                     .bars = {}};
  for (const ModuleSummary& module : report.modules) {
    size.points.push_back({module.module, static_cast<double>(module.bytes) / 1e6});
    bits.points.push_back({module.module, module.BitsPerWeight()});
  }
  return DepthChartSvg(size) + DepthChartSvg(bits);
}

HtmlRow ModuleRow(const std::string& name, uint64_t names, const ModuleSummary& like) {
  return {{.text = name},
          CountCell(names),
          CountCell(like.n),
          CountCell(like.k),
          {.text = DescribeScheme(like.scheme)},
          LayoutCell(like.layout),
          BytesCell(names * like.bytes),
          BitsCell(like.BitsPerWeight())};
}

std::string ModulesHtml(const InspectReport& report) {
  std::vector<HtmlRow> rows;
  if (report.modules.size() > kMostRows) {
    for (const FoldedModules& modules : FoldModules(report)) {
      rows.push_back(ModuleRow(modules.names.text, modules.names.names, *modules.like));
    }
  } else {
    std::vector<std::string> names;
    for (const ModuleSummary& module : report.modules) names.push_back(module.module);
    for (const size_t i : DepthOrder(names)) {
      rows.push_back(ModuleRow(names[i], 1, report.modules[i]));
    }
  }
  return SortableTable({{"module"},
                        {"modules", true},
                        {"N", true},
                        {"K", true},
                        {"scheme"},
                        {"layout"},
                        {"size", true},
                        {"bits/weight", true}},
                       rows);
}

HtmlRow TensorRow(const std::string& name, uint64_t names, const StoredTensor& like,
                  const std::string& file) {
  return {{.text = name},
          CountCell(names),
          {.text = std::string(DTypeName(like.dtype))},
          {.text = fmt::format("{}", fmt::join(like.shape, " × "))},
          BytesCell(names * like.bytes),
          {.text = file},
          names == 1 ? CountCell(like.offset) : HtmlCell{}};
}

std::string TensorsHtml(const InspectReport& report) {
  std::vector<HtmlRow> rows;
  if (report.tensors.size() > kMostRows) {
    for (const FoldedTensors& tensors : FoldTensors(report)) {
      const bool is_one = tensors.names.names == 1;
      rows.push_back(TensorRow(tensors.names.text, tensors.names.names, *tensors.like,
                               is_one ? report.files[tensors.like->file].name : ""));
    }
  } else {
    for (const StoredTensor& tensor : report.tensors) {
      rows.push_back(TensorRow(tensor.name, 1, tensor, report.files[tensor.file].name));
    }
  }
  return SortableTable({{"tensor"},
                        {"tensors", true},
                        {"dtype"},
                        {"shape"},
                        {"size", true},
                        {"file"},
                        {"offset", true}},
                       rows);
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
  return HtmlPage(fmt::format("prepack inspect: {}", report.path),
                  FolderHeadHtml(report) + HtmlSection("Findings", NotesHtml(report)) +
                      HtmlSection("Schemes", SchemesHtml(report)) +
                      HtmlSection("What each target would take", TargetsHtml(report)) +
                      HtmlSection("Along the depth of the model", ChartsHtml(report)) +
                      HtmlSection("Modules", ModulesHtml(report)) +
                      HtmlFoldedSection("Tensors", TensorsHtml(report)));
}

}  // namespace prepack
