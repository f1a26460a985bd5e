#include <algorithm>
#include <array>
#include <string>

#include "formats/auto_round.h"
#include "formats/awq.h"
#include "formats/compressed_tensors.h"
#include "formats/foreign_methods.h"
#include "formats/foreign_modules.h"
#include "formats/format.h"
#include "formats/fp8.h"
#include "formats/gptq.h"
#include "formats/quantization_config.h"

namespace prepack {

namespace {

// In order of detection; a format that is a dialect of another one comes before it.
constexpr std::array kFormats = {
    Format{"compressed-tensors", DetectCompressedTensors, ReadCompressedTensors},
    Format{"fp8", DetectFp8, ReadFp8},
    Format{"awq", DetectAwq, ReadAwq},
    Format{"auto-round", DetectAutoRound, ReadAutoRound},
    Format{"gptq", DetectGptq, ReadGptq},
};

std::string KnownFormats() {
  std::string known;
  for (const Format& format : kFormats) {
    if (!known.empty()) known += ", ";
    known += format.id;
  }
  return known;
}

}  // namespace

const QuantizedLinear* QuantizedModel::Find(std::string_view module) const {
  const auto it = std::ranges::lower_bound(
      modules, module, {}, [](const auto& linear) { return std::string_view(linear->module()); });
  return it != modules.end() && (*it)->module() == module ? it->get() : nullptr;
}

std::span<const Format> AllFormats() {
  return kFormats;
}

Result<QuantizedModel> ExamineQuantizedModel(const Checkpoint& checkpoint) {
  for (const Format& format : kFormats) {
    if (!format.detect(checkpoint)) continue;
    Result<QuantizedModel> model = format.read(checkpoint);
    if (model.ok()) ReportForeignModules(checkpoint, *model);
    return model;
  }
  const Result<QuantizationConfig> config = FindQuantizationConfig(checkpoint);
  if (!config.ok()) return config.status();
  if (config->method == "prepack") {
    return Unsupported(config->where, "the folder is already packed")
        .Hint("Convert the source checkpoint that it was made from")
        .Id(FindingId("already-packed"));
  }
  return RefuseMethod(config->method, config->where, KnownFormats());
}

Result<QuantizedModel> ReadQuantizedModel(const Checkpoint& checkpoint) {
  Result<QuantizedModel> model = ExamineQuantizedModel(checkpoint);
  if (model.ok() && !model->errors.empty()) return std::move(model->errors.front());
  return model;
}

}  // namespace prepack
