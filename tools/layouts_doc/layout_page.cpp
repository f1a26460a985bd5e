#include "layout_page.h"
#include "prepack/base/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "examples.h"
#include "parts_table.h"
#include "prepack/layouts/drawing.h"
#include "prose.h"

namespace prepack::layouts_doc {
namespace {

// What `prepack convert` makes a packed folder of a layout from: a bundled checkpoint, and options.
struct Recipe {
  std::string_view layout;
  std::string_view arguments;
  std::string_view module = "model.layers.0.mlp.down_proj";
};

constexpr auto kRecipes = std::to_array<Recipe>({
    {"vllm-cpu/wna16", "ct-w4a16-g32-asym -o packed --target vllm-cpu"},
    {"vllm-cpu/int4-w4a8", "ct-w4a8 -o packed --target vllm-cpu"},
    {"vllm-cpu/int8-vnni", "ct-w8a8-dynamic -o packed --target vllm-cpu"},
    {"vllm-cpu/int8-plain", "ct-w8a8-static -o packed --target vllm-cpu"},
    {"vllm-cpu/fp8-vnni", "ct-fp8-block -o packed --target vllm-cpu"},
    {"vllm-cpu/fp8-w8a8-vnni4", "ct-fp8-block -o packed --target vllm-cpu --scheme w8a8"},
    {"vllm-cpu/bf16-vnni", "ct-w8a16-g128-sym -o packed --target vllm-cpu --fallback dequantize"},
    {"zentorch/woq", "ct-w4a16-g32-asym -o packed --target zentorch"},
    {"zentorch/da8w4", "ct-w4a8 -o packed --target zentorch"},
    {"zentorch/int8", "ct-w8a8-dynamic -o packed --target zentorch"},
    {"onednn/w4a16", "ct-w4a16-g32-asym -o packed --target onednn"},
    {"onednn/w4a8", "ct-w4a8 -o packed --target onednn"},
    {"onednn/w8a8", "ct-w8a8-dynamic -o packed --target onednn"},
    {"plain/bf16", "ct-w8a16-g128-sym -o packed --target onednn --fallback dequantize"},
    {"plain/bf16-conv1d", "gptqmodel-gpt2-w8 -o packed --target onednn --fallback dequantize",
     "transformer.h.0.mlp.c_proj"},
});

uint64_t WeightBytes(const Layout& layout, const PackRequest& request) {
  const std::vector<PartSpec> parts = layout.Parts(request);
  const PartSpec& weight = *FindPart(parts, PartRole::kWeight);
  return TensorBytes(weight.dtype, weight.shape).value();
}

// The drawing as a code block of Markdown.
std::string DrawingBlock(const Layout& layout, const PackRequest& request) {
  std::string text;
  bool at_line_begin = true;
  for (const char c : DrawWeight(layout, request)) {
    if (at_line_begin) text += "    ";
    text += c;
    at_line_begin = c == '\n';
  }
  return text;
}

std::string FormText(const Layout& layout, const PackRequest& request) {
  const DType value = layout.scales.value.Of(request);
  const DType stored = layout.scales.stored.Of(request);
  if (value == stored) return std::string(DTypeName(stored));
  return fmt::format("{} values in {}", DTypeName(value), DTypeName(stored));
}

// What scales become, for each dtype of activations that matters.
std::string FormsText(const Layout& layout, bool exact) {
  std::string text;
  std::string first;
  for (PackRequest request : Examples(layout)) {
    request.exact_scales = exact;
    const std::string form = FormText(layout, request);
    if (first.empty()) text = first = form;
    const std::string with =
        fmt::format("; {} with {} activations", form, DTypeName(request.activation_dtype));
    if (form != first && text.find(with) == std::string::npos) text += with;
  }
  return text;
}

// What reads folders of a target, beside the runtime itself.
std::string_view ReadersText(std::string_view target) {
  if (target == "onednn") return kOneDnnReaders;
  return target == kAnyTarget ? kAnyReaders : kVllmReaders;
}

std::string ReadBy(const Layout& layout) {
  return fmt::format(
      "\n## Who reads it\n\n"
      "- Op: {}\n- CPU: {}\n- The bytes are those of: {}\n{}",
      ConsumerText(layout), layout.isa, layout.mirrors, ReadersText(layout.target));
}

std::string ScalesText(const Layout& layout) {
  if (!layout.HasScales()) return "";
  const std::string runtime = FormsText(layout, false);
  const std::string exact = FormsText(layout, true);
  if (runtime == exact) return fmt::format("- Scales: {}\n", exact);
  return fmt::format("- Scales, with `--scales runtime`: {}; with `--scales exact`: {}\n", runtime,
                     exact);
}

std::string Takes(const Layout& layout) {
  std::string text = fmt::format("\n## What it takes\n\n- Modules: {}\n- Shapes and types: {}\n{}",
                                 layout.schemes, layout.constraints, ScalesText(layout));
  if (!layout.offered) text += "- `prepack convert` never chooses it; it is known and tested\n";
  return text;
}

std::string Place(const Layout& layout) {
  const PackRequest example = DrawnExample(layout);
  std::string text = fmt::format("\n## Where weight (n, k) lies\n\n- {}\n", layout.address);
  if (!layout.notes.empty()) text += fmt::format("- Note: {}\n", layout.notes);
  return text + fmt::format("\n`weight` for N = {}, K = {}, {}; {} bytes:\n\n{}", example.n,
                            example.k, DescribeScheme(example.scheme), WeightBytes(layout, example),
                            DrawingBlock(layout, example));
}

Result<std::string> Commands(const Layout& layout) {
  if (!layout.offered) return std::string(kSeeInTargets);
  const auto* recipe = std::ranges::find(kRecipes, layout.id, &Recipe::layout);
  if (recipe == kRecipes.end()) {
    return Unsupported(std::string(layout.id), "layout_page.cpp has no recipe for it");
  }
  return fmt::format(
      "{}\n    prepack convert {}\n    prepack inspect packed --layout {}\n"
      "    prepack inspect packed --find {} 17 101\n\n{}",
      kSeeBundled, recipe->arguments, recipe->module, recipe->module, kSeeInShort);
}

}  // namespace

std::string PageName(const Layout& layout) {
  std::string name(layout.id);
  std::ranges::replace(name, '/', '-');
  return name + ".md";
}

std::string ConsumerText(const Layout& layout) {
  const bool is_function = layout.target != kAnyTarget;
  return is_function ? fmt::format("`{}`", layout.consumer) : std::string(layout.consumer);
}

Result<std::string> LayoutPage(const Layout& layout) {
  PREPACK_TRY_ASSIGN(std::string parts, PartsTable(layout));
  PREPACK_TRY_ASSIGN(std::string commands, Commands(layout));
  std::string text = fmt::format("# {}\n{}", layout.id, kPageIntroduction);
  text += ReadBy(layout) + Takes(layout) + Place(layout);
  text += fmt::format("\n## Parts\n\n{}\nFingerprint of version {}: `{}`\n", parts, layout.version,
                      layout.fingerprint);
  if (layout.id == "onednn/w8a8") text += kMemoryDescriptor;
  return text + commands;
}

}  // namespace prepack::layouts_doc
