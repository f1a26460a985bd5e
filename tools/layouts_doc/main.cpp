// Prints docs/layouts.md.

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "examples.h"
#include "layouts/drawing.h"
#include "layouts/runtime_choice.h"
#include "layouts/table.h"
#include "parts_table.h"
#include "prose.h"

namespace prepack::layouts_doc {
namespace {

// Names of functions in the type of code.
std::string ConsumerText(const Layout& layout) {
  const bool is_function = layout.target != kAnyTarget;
  return is_function ? fmt::format("`{}`", layout.consumer) : std::string(layout.consumer);
}

std::string LayoutTable() {
  std::string text =
      "\n## All layouts\n\n"
      "| id | version | schemes | takes | consumer | CPU | offered |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const Layout& layout : AllLayouts()) {
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", layout.id, layout.version,
                        layout.schemes, layout.constraints, ConsumerText(layout), layout.isa,
                        layout.offered ? "yes" : "no");
  }
  return text +
         "\nWithin a target the first one that takes a module is chosen. One that is not offered "
         "is "
         "known and tested, but never chosen.\n";
}

uint64_t WeightBytes(const Layout& layout, const PackRequest& request) {
  const std::vector<PartSpec> parts = layout.parts(request);
  const PartSpec& weight = *FindPart(parts, PartRole::kWeight);
  return TensorBytes(weight.dtype, weight.shape).value();
}

// The drawing as a code block of Markdown.
std::string DrawingBlock(const Layout& layout, const PackRequest& request) {
  std::string text = "\n";
  bool at_line_begin = true;
  for (const char c : DrawWeight(layout, request)) {
    if (at_line_begin) text += "    ";
    text += c;
    at_line_begin = c == '\n';
  }
  return text;
}

Result<std::string> Section(const Layout& layout) {
  const PackRequest example = DrawnExample(layout);
  Result<std::string> parts = PartsTable(layout);
  if (!parts.ok()) return parts.status();
  std::string text = fmt::format(
      "\n## {}\n\n"
      "- Consumer: {}\n- Mirrors: {}\n- Weight (n, k): {}\n",
      layout.id, ConsumerText(layout), layout.mirrors, layout.address);
  if (!layout.notes.empty()) text += fmt::format("- Note: {}\n", layout.notes);
  text += fmt::format("- Fingerprint of version {}: `{}`\n", layout.version, layout.fingerprint);
  text += fmt::format("\nParts:\n\n{}\n", *parts);
  text += fmt::format("`weight` for N = {}, K = {}, {}; {} bytes:\n{}", example.n, example.k,
                      DescribeScheme(example.scheme), WeightBytes(layout, example),
                      DrawingBlock(layout, example));
  return text;
}

std::string FormText(const ScaleForm& form) {
  if (form.value == form.part) return std::string(DTypeName(form.part));
  return fmt::format("{} values in {}", DTypeName(form.value), DTypeName(form.part));
}

// What scales become, for each dtype of activations that matters.
std::string FormsText(const Layout& layout, bool exact) {
  std::string text;
  std::string first;
  for (PackRequest request : Examples(layout)) {
    request.exact_scales = exact;
    const std::string form = FormText(layout.scale_form(request));
    if (first.empty()) text = first = form;
    const std::string with =
        fmt::format("; {} with {} activations", form, DTypeName(request.activation_dtype));
    if (form != first && text.find(with) == std::string::npos) text += with;
  }
  return text;
}

std::string ScaleTable() {
  std::string text = "\n| layout | runtime | exact |\n|---|---|---|\n";
  for (const Layout& layout : AllLayouts()) {
    if (layout.scale_form == nullptr) continue;
    text += fmt::format("| `{}` | {} | {} |\n", layout.id, FormsText(layout, false),
                        FormsText(layout, true));
  }
  return text;
}

std::string FallbackTable() {
  std::string text = "| target | layouts |\n|---|---|\n";
  for (const Target& target : AllTargets()) {
    std::string ids;
    for (const Layout* layout : LayoutsOfTarget(target.id)) {
      if (!layout->for_dequantized || !layout->offered) continue;
      ids += fmt::format("{}`{}` ({})", ids.empty() ? "" : ", ", layout->id, layout->constraints);
    }
    text += fmt::format("| {} | {} |\n", target.id, ids);
  }
  return text;
}

struct Checkpoint {
  std::string_view text;
  std::string_view format = "compressed-tensors";
  Scheme scheme = {.group_size = 128};
  DType activations = DType::kBF16;
  bool reordered = false;
};

ActivationScheme Activations(ActivationType type, bool symmetric, bool dynamic) {
  return {.type = type, .bits = 8, .symmetric = symmetric, .dynamic = dynamic};
}

std::vector<Checkpoint> Checkpoints() {
  const ActivationScheme dynamic = Activations(ActivationType::kInt, true, true);
  const ActivationScheme fixed = Activations(ActivationType::kInt, true, false);
  const ActivationScheme asymmetric = Activations(ActivationType::kInt, false, true);
  const Scheme w4{.group_size = 128};
  Scheme w4_asymmetric = w4;
  w4_asymmetric.symmetric = false;
  const auto w8 = [](const ActivationScheme& activations) {
    return Scheme{.code = CodeType::kS8,
                  .bits = 8,
                  .granularity = Granularity::kChannel,
                  .activations = activations};
  };
  const auto fp8 = [](Granularity granularity) {
    return Scheme{.code = CodeType::kF8E4M3,
                  .bits = 8,
                  .granularity = granularity,
                  .activations = Activations(ActivationType::kFloat, true, true)};
  };
  return {
      {.text = "compressed-tensors, 4 bits symmetric", .scheme = w4},
      {.text = "the same, f16 activations", .scheme = w4, .activations = DType::kF16},
      {.text = "compressed-tensors, 4 bits asymmetric", .scheme = w4_asymmetric},
      {.text = "GPTQ or AWQ, 4 bits", .format = "gptq", .scheme = w4},
      {.text = "GPTQ, 4 bits with activation order",
       .format = "gptq",
       .scheme = w4,
       .reordered = true},
      {.text = "int8, dynamic symmetric activations", .scheme = w8(dynamic)},
      {.text = "int8, static symmetric activations", .scheme = w8(fixed)},
      {.text = "int8, asymmetric activations", .scheme = w8(asymmetric)},
      {.text = "int8 weights, 16-bit activations", .scheme = w8({})},
      {.text = "FP8, scales per block", .scheme = fp8(Granularity::kBlock)},
      {.text = "FP8, one scale", .scheme = fp8(Granularity::kTensor)},
      {.text = "FP8, scales per channel", .scheme = fp8(Granularity::kChannel)},
  };
}

std::string ChoiceTable() {
  std::string text;
  for (const Checkpoint& checkpoint : Checkpoints()) {
    std::string_view name = checkpoint.text;  // on the first of its lines
    for (const RuntimeChoice& choice :
         RuntimeChoices("vllm-cpu", checkpoint.format, checkpoint.scheme, checkpoint.activations,
                        checkpoint.reordered)) {
      text +=
          fmt::format("| {} | {} | {} | {} |\n", name, choice.cpu, choice.kernel, choice.remark);
      name = "";
    }
  }
  return text;
}

Result<std::string> Document() {
  std::string text(kIntroduction);
  text += LayoutTable();
  for (const Layout& layout : AllLayouts()) {
    Result<std::string> section = Section(layout);
    if (!section.ok()) return section.status();
    text += *section;
  }
  text += kInputOrder;
  text += kScales;
  text += ScaleTable();
  text += kOneDnn;
  text += kFallback;
  text += FallbackTable();
  text += kChoices;
  text += ChoiceTable();
  return text;
}

}  // namespace
}  // namespace prepack::layouts_doc

int main() {
  const prepack::Result<std::string> document = prepack::layouts_doc::Document();
  if (!document.ok()) {
    fmt::print(stderr, "layouts_doc: {}\n", document.status().ToString());
    return 1;
  }
  fmt::print("{}", *document);
  return 0;
}
