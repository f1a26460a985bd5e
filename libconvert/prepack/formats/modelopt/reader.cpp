#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/modelopt/config.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"

namespace prepack {
namespace {

const StoredTensor* AnyScale(const ModuleTensors& module) {
  const StoredTensor* scale = module.Find("weight_scale");
  return scale != nullptr ? scale : module.Find("weight_scale_inv");
}

// FP8, or codes of another kind beside their scales.
bool IsModelOptQuantized(const ModuleTensors& module, const StoredTensor& weight) {
  return IsFloat8(weight.dtype) || (weight.dtype == DType::kU8 && AnyScale(module) != nullptr) ||
         (weight.dtype == DType::kI8 && AnyScale(module) != nullptr);
}

// A weight in floating point that the config wants quantized, by the name of a linear layer.
bool IsTargetedPlain(const ModelOptConfig& config, const ModuleTensors& module,
                     const StoredTensor& weight) {
  if (weight.shape.size() != 2 || !module.name.ends_with("_proj")) return false;
  const ModelOptEntry* entry = config.Find(module.name);
  return entry != nullptr && entry->algo != ModelOptAlgo::kUnquantized &&
         !config.Excludes(module.name);
}

// What else changes the outputs of the module.
Status RefuseCorrections(const Checkpoint& checkpoint, const ModuleTensors& module) {
  for (const std::string_view name : {"pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b"}) {
    const StoredTensor* tensor = module.Find(name);
    if (tensor == nullptr) continue;
    return Unsupported(
               checkpoint.Where(*tensor),
               "the runtime would have to do more than multiply with the weights of this module")
        .Hint("Quantize the model with an algorithm that stores weights and scales only")
        .Id(FindingId("storage-unsupported"));
  }
  return {};
}

Result<const StoredTensor*> FindModelOptScale(const Checkpoint& checkpoint,
                                              const ModuleTensors& module,
                                              const StoredTensor& weight) {
  const StoredTensor* scale = module.Find("weight_scale");
  const StoredTensor* inverse = module.Find("weight_scale_inv");
  if (scale != nullptr && inverse != nullptr) {
    return Malformed(checkpoint.Where(*inverse),
                     "the module has both weight_scale_inv and weight_scale")
        .Hint("Only one of them can be the scale; save the model again")
        .Id(FindingId("weight-twice"));
  }
  if (scale != nullptr) return scale;
  if (inverse != nullptr) return inverse;
  return MissingFp8Scale(checkpoint, weight, fmt::format("{}.weight_scale", module.name));
}

Result<std::unique_ptr<QuantizedLinear>> DescribeModelOpt(const Checkpoint& checkpoint,
                                                          const ModelOptConfig& config,
                                                          const ModuleTensors& module,
                                                          const StoredTensor& weight) {
  PREPACK_TRY(CheckModuleName(module.name));
  const ModelOptEntry* entry = config.Find(module.name);
  if (entry == nullptr) {
    return Malformed(module.name, "the module is quantized, but quantized_layers does not name it")
        .Expected(fmt::format("an entry in {}.quantized_layers", config.where))
        .Id(FindingId("module-without-group"));
  }
  if (entry->algo == ModelOptAlgo::kUnread) {
    return Unsupported(module.name, fmt::format("ModelOpt's {} weights are not supported",
                                                Printable(entry->name)))
        .Found(fmt::format("weight {} {}", DTypeName(weight.dtype), ShowShape(weight.shape)))
        .Hint("Save the model in 16 bits and quantize that to integers or FP8")
        .Id(FindingId("scheme-unsupported"));
  }
  if (entry->algo == ModelOptAlgo::kUnquantized) {
    return Malformed(module.name, "the config says that the module is not quantized, but it is")
        .Found(fmt::format("weight {}", DTypeName(weight.dtype)))
        .Hint("Check quant_algo of this module")
        .Id(FindingId("module-scheme-contradiction"));
  }
  PREPACK_TRY(CheckFp8Weight(checkpoint, module.name, weight));
  PREPACK_TRY(RefuseCorrections(checkpoint, module));
  PREPACK_TRY_ASSIGN(const StoredTensor* scale, FindModelOptScale(checkpoint, module, weight));
  return DescribeFp8(checkpoint, module.name, weight, *scale, module.Find("input_scale"),
                     entry->Meaning());
}

}  // namespace

Result<QuantizedModel> ReadModelOpt(const Checkpoint& checkpoint) {
  PREPACK_TRY_ASSIGN(const std::vector<QuantizationConfig> declared,
                     FindQuantizationConfigs(checkpoint));
  PREPACK_TRY_ASSIGN(const ModelOptConfig config, ParseModelOptConfigs(declared));

  QuantizedModel model;
  model.format = "modelopt";
  model.quantization_config = declared.front().fields;
  const std::vector<ModuleTensors> modules = GroupByModule(checkpoint);
  FindingTally findings;
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr) continue;
    if (!IsModelOptQuantized(module, *weight)) {
      if (IsTargetedPlain(config, module, *weight)) {
        plain.Add(module.name, "the config does not exclude the module, but it is not quantized");
      }
      continue;
    }
    if (config.Excludes(module.name)) {
      findings.Add("module-ignored-but-quantized", module.name,
                   "the config excludes the module, but it is quantized");
    }
    model.Add(DescribeModelOpt(checkpoint, config, module, *weight));
  }
  PREPACK_TRY(
      RequireModules(model, config.where, "tensors named MODULE.weight of dtype F8_E4M3", "FP8"));
  plain.Report(model, findings);
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
