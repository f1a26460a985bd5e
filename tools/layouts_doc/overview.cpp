#include "overview.h"

#include <fmt/format.h>

#include <vector>

#include "layout_page.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"
#include "prose.h"

namespace prepack::layouts_doc {
namespace {

std::string LayoutTable() {
  std::string text =
      "\n## All layouts\n\n"
      "| layout | schemes | takes | consumer | CPU | offered |\n"
      "|---|---|---|---|---|---|\n";
  for (const Layout& layout : AllLayouts()) {
    text += fmt::format("| [`{}`]({}) | {} | {} | {} | {} | {} |\n", layout.id, PageName(layout),
                        layout.schemes, layout.constraints, ConsumerText(layout), layout.isa,
                        layout.offered ? "yes" : "no");
  }
  return text +
         "\nWithin a target the first one that takes a module is chosen. One that is not offered "
         "is\nknown and tested, but never chosen.\n";
}

std::string FallbackTable() {
  std::string text = "| target | layouts |\n|---|---|\n";
  for (const Target& target : AllTargets()) {
    std::string ids;
    for (const Layout* layout : LayoutsOfTarget(target.id)) {
      if (!layout->for_dequantized || !layout->offered) continue;
      ids += fmt::format("{}[`{}`]({}) ({})", ids.empty() ? "" : ", ", layout->id,
                         PageName(*layout), layout->constraints);
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

}  // namespace

std::string Overview() {
  return std::string(kIntroduction) + LayoutTable() + std::string(kInputOrder) +
         std::string(kFallback) + FallbackTable() + std::string(kChoices) + ChoiceTable();
}

}  // namespace prepack::layouts_doc
