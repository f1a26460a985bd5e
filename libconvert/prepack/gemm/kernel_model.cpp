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
  bool cuts_fractions = false;  // of activations
};

constexpr std::array kModels = {
    ModelRow{&kVllmWna16, MakeWna16Model, WeightRounding::kToActivation},
    ModelRow{&kVllmInt4W4A8, MakeInt4W4A8Model, WeightRounding::kNone},
    ModelRow{&kVllmInt8Vnni, MakeInt8VnniModel, WeightRounding::kNone},
    ModelRow{&kVllmInt8Plain, MakeVllmInt8PlainModel, WeightRounding::kNone},
    ModelRow{&kVllmFp8Vnni, MakeFp8VnniModel, WeightRounding::kFp8ToBF16},
    ModelRow{&kVllmMxfp4, MakeMxfp4Model, WeightRounding::kToBF16},
    ModelRow{&kVllmBf16Vnni, MakeBf16VnniModel, WeightRounding::kDequantized},
    ModelRow{&kVllmFp8W8A8Vnni4, MakeFp8W8A8Vnni4Model, WeightRounding::kNone},
    ModelRow{&kVllmFp8W8A8Plain, MakeFp8W8A8PlainModel, WeightRounding::kNone},
    ModelRow{&kZentorchWoq, MakeZentorchWoqModel, WeightRounding::kToBF16},
    ModelRow{&kZentorchDa8w4, MakeZentorchDa8W4Model, WeightRounding::kNone},
    ModelRow{&kZentorchInt8, MakeZentorchInt8Model, WeightRounding::kNone},
    ModelRow{&kZentorchInt8Dlp, MakeZentorchInt8DlpModel, WeightRounding::kNone},
    ModelRow{&kVllmArmInt4W4A8, MakeKleidiAiModel, WeightRounding::kNone},
    ModelRow{&kVllmArmInt8Neon, MakeInt8NeonModel, WeightRounding::kNone},
    ModelRow{&kVllmArmInt8Plain, MakeVllmArmInt8PlainModel, WeightRounding::kNone, true},
    ModelRow{&kVllmArmBf16Neon, MakeBf16NeonModel, WeightRounding::kDequantized},
    ModelRow{&kOneDnnW4A16, MakeOneDnnW4A16Model, WeightRounding::kToBF16},
    ModelRow{&kOneDnnW4A8, MakeOneDnnW4A8Model, WeightRounding::kNone},
    ModelRow{&kOneDnnW8A8, MakeOneDnnW8A8Model, WeightRounding::kNone},
    ModelRow{&kKtAmxInt8, MakeKtAmxInt8Model, WeightRounding::kNone},
    ModelRow{&kKtAmxInt4, MakeKtAmxInt4Model, WeightRounding::kNone},
    ModelRow{&kPlainBf16, MakePlainBf16Model, WeightRounding::kDequantized},
    ModelRow{&kPlainBf16Conv1d, MakePlainBf16Conv1dModel, WeightRounding::kDequantized},
    ModelRow{&kBf16Experts, MakePlainBf16Conv1dModel, WeightRounding::kDequantized},
};

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

bool CutsFractions(const Layout& layout) {
  const auto* row = std::ranges::find(kModels, &layout, &ModelRow::layout);
  return row != kModels.end() && row->cuts_fractions;
}

std::vector<std::string_view> ModelledLayouts() {
  std::vector<std::string_view> layouts;
  layouts.reserve(kModels.size());
  for (const ModelRow& row : kModels) layouts.push_back(row.layout->id);
  return layouts;
}

}  // namespace prepack
