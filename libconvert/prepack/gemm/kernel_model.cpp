#include "prepack/gemm/kernel_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "prepack/gemm/model_operands.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

struct ModelRow {
  const Layout* layout;
  MakeModel* make;
  WeightRounding rounding;
};

constexpr auto kModels = std::to_array<ModelRow>({
#define PREPACK_LAYOUT(row, model, rounding) {&(row), model, WeightRounding::rounding},
#include "prepack/layouts/layouts.inc"
});

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeKernelModel(std::string_view layout,
                                                     const PackedOperands& packed,
                                                     const ModelInput& input) {
  for (const ModelRow& row : kModels) {
    if (row.layout->id != layout) continue;
    Status status = CheckModelInput(packed, input);
    if (!status.ok()) return std::move(status).In(layout);
    Result<std::unique_ptr<KernelModel>> model = row.make(packed, input);
    if (!model.ok()) return Status(model.status()).In(layout);
    return model;
  }
  return Unsupported("kernel model", "no model computes what a kernel makes of this layout")
      .Found(fmt::format("\"{}\"", Printable(layout)));
}

std::optional<WeightRounding> WeightRoundingOf(const Layout& layout, const PackRequest& request) {
  if (layout.consumer_scales.Of(request)) return WeightRounding::kFp8;
  const auto* row = std::ranges::find(kModels, &layout, &ModelRow::layout);
  return row == kModels.end() ? std::nullopt : std::optional(row->rounding);
}

std::vector<std::string_view> ModelledLayouts() {
  std::vector<std::string_view> layouts;
  layouts.reserve(kModels.size());
  for (const ModelRow& row : kModels) layouts.push_back(row.layout->id);
  return layouts;
}

}  // namespace prepack
