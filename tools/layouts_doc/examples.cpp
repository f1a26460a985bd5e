#include "examples.h"

#include <array>

#include "prepack/layouts/fingerprint.h"

namespace prepack::layouts_doc {
namespace {

struct Size {
  uint64_t n;
  uint64_t k;
  uint64_t group_size;
};

// Chosen so that no two formulas of formulas.h agree on all that a layout takes.
constexpr std::array kSizes = {Size{192, 512, 64}, Size{320, 1024, 256}, Size{448, 1536, 32},
                               Size{96, 160, 8},   Size{100, 264, 24},   Size{34, 88, 8}};
constexpr std::array kDrawnSizes = {Size{100, 256, 64}, Size{96, 256, 64}};

constexpr uint64_t kBlockRows = 64;  // no layout has units of so many

void AddExamples(const Layout& layout, const Size& size, std::vector<PackRequest>& examples) {
  for (const Scheme& scheme : ProbeSchemes(size.n, size.k, size.group_size)) {
    for (const DType activations : {DType::kBF16, DType::kF16, DType::kF32}) {
      PackRequest request{.scheme = scheme,
                          .n = size.n,
                          .k = size.k,
                          .activation_dtype = activations,
                          .bias_dtype = DType::kF32,
                          .reordered = !layout.for_dequantized,
                          .inputs_first = layout.inputs_first};
      if (scheme.granularity == Granularity::kBlock) request.scheme.scale_rows = kBlockRows;
      if (layout.eligible(request).ok) examples.push_back(request);
      if (scheme.granularity != Granularity::kBlock) continue;
      request.scheme.group_size *= 2;
      if (layout.eligible(request).ok) examples.push_back(request);
    }
  }
}

}  // namespace

std::vector<PackRequest> Examples(const Layout& layout) {
  std::vector<PackRequest> examples;
  for (const Size& size : kSizes) AddExamples(layout, size, examples);
  return examples;
}

PackRequest DrawnExample(const Layout& layout) {
  std::vector<PackRequest> examples;
  for (const Size& size : kDrawnSizes) AddExamples(layout, size, examples);
  return examples.at(0);
}

}  // namespace prepack::layouts_doc
