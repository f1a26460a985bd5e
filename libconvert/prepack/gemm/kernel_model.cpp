#include "prepack/gemm/kernel_model.h"

#include <fmt/format.h>

#include <array>

#include "prepack/gemm/model_operands.h"

namespace prepack {
namespace {

struct ModelRow {
  std::string_view layout;
  MakeModelFn make;
};

constexpr std::array kModels = {
    ModelRow{"vllm-cpu/wna16", MakeWna16Model},
    ModelRow{"vllm-cpu/int4-w4a8", MakeInt4W4A8Model},
    ModelRow{"vllm-cpu/int8-vnni", MakeInt8VnniModel},
    ModelRow{"vllm-cpu/int8-plain", MakeVllmInt8PlainModel},
    ModelRow{"vllm-cpu/fp8-vnni", MakeFp8VnniModel},
    ModelRow{"vllm-cpu/bf16-vnni", MakeBf16VnniModel},
    ModelRow{"vllm-cpu/fp8-w8a8-vnni4", MakeFp8W8A8Vnni4Model},
    ModelRow{"vllm-cpu/fp8-w8a8-plain", MakeFp8W8A8PlainModel},
    ModelRow{"zentorch/woq", MakeZentorchWoqModel},
    ModelRow{"zentorch/da8w4", MakeZentorchDa8W4Model},
    ModelRow{"zentorch/int8", MakeZentorchInt8Model},
    ModelRow{"zentorch/int8-dlp", MakeZentorchInt8DlpModel},
    ModelRow{"onednn/w4a16", MakeOneDnnW4A16Model},
    ModelRow{"onednn/w4a8", MakeOneDnnW4A8Model},
    ModelRow{"onednn/w8a8", MakeOneDnnW8A8Model},
    ModelRow{"plain/bf16", MakePlainBf16Model},
    ModelRow{"plain/bf16-conv1d", MakePlainBf16Conv1dModel},
};

}  // namespace

Result<std::unique_ptr<KernelModel>> MakeKernelModel(std::string_view layout,
                                                     const PackedOperands& packed,
                                                     const ModelInput& input) {
  for (const ModelRow& row : kModels) {
    if (row.layout != layout) continue;
    Status status = CheckModelInput(packed, input);
    if (!status.ok()) return std::move(status).In(layout);
    Result<std::unique_ptr<KernelModel>> model = row.make(packed, input);
    if (!model.ok()) return Status(model.status()).In(layout);
    return model;
  }
  return Unsupported("kernel model", "no model computes what a kernel makes of this layout")
      .Found(fmt::format("\"{}\"", Printable(layout)));
}

std::vector<std::string_view> ModelledLayouts() {
  std::vector<std::string_view> layouts;
  layouts.reserve(kModels.size());
  for (const ModelRow& row : kModels) layouts.push_back(row.layout);
  return layouts;
}

}  // namespace prepack
