#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/fp8/config.h"
#include "prepack/formats/fp8/module.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"

namespace prepack::fp8 {

namespace {

// The names that writers give the scale; no module has two of them.
constexpr std::array<std::string_view, 3> kScaleNames = {"weight_scale_inv", "weight_scale",
                                                         "scale"};

class Fp8Reader {
 public:
  Fp8Reader(const Checkpoint& checkpoint, const Config& config,
            std::span<const ModuleTensors> modules)
      : checkpoint_(checkpoint), config_(config), modules_(modules) {}

  Result<std::unique_ptr<QuantizedLinear>> Describe(const ModuleTensors& module,
                                                    const StoredTensor& weight) const;
  // The experts of all stacks that lie in the module.
  void DescribeStacks(const ModuleTensors& module, QuantizedModel& model) const;

 private:
  // nullptr where there is none.
  Result<const StoredTensor*> FindScale(const ModuleTensors& module) const;
  Result<const StoredTensor*> FindInput(const ModuleTensors& module) const;
  Status MissingScale(const ModuleTensors& module, const StoredTensor& weight) const;

  const Checkpoint& checkpoint_;
  const Config& config_;
  std::span<const ModuleTensors> modules_;  // ascending by name
};

Result<const StoredTensor*> Fp8Reader::FindScale(const ModuleTensors& module) const {
  const StoredTensor* found = nullptr;
  std::string_view first;
  for (const std::string_view name : kScaleNames) {
    // What divides has one name only.
    if (config_.scale_divides && name != kScaleNames.front()) continue;
    const StoredTensor* scale = module.Find(name);
    if (scale == nullptr) continue;
    if (found != nullptr) {
      return Malformed(checkpoint_.Where(*found),
                       fmt::format("the module has both {} and {}", name, first))
          .Hint("Only one of them can be the scale; save the model again")
          .Id(FindingId("weight-twice"));
    }
    found = scale;
    first = name;
  }
  return found;
}

Status Fp8Reader::MissingScale(const ModuleTensors& module, const StoredTensor& weight) const {
  return fp8::MissingScale(
      checkpoint_, weight,
      config_.scale_divides
          ? fmt::format("{}.weight_scale_inv", module.name)
          : fmt::format("{}.weight_scale_inv, .weight_scale or .scale", module.name));
}

Result<const StoredTensor*> Fp8Reader::FindInput(const ModuleTensors& module) const {
  const StoredTensor* scale = module.Find("input_scale");
  const StoredTensor* of_transformers = module.Find("activation_scale");
  if (of_transformers == nullptr) return scale;
  if (scale == nullptr) return of_transformers;
  return Malformed(checkpoint_.Where(*of_transformers),
                   "the module has both input_scale and activation_scale")
      .Hint("Only one of them can be the scale; save the model again")
      .Id(FindingId("weight-twice"));
}

Result<std::unique_ptr<QuantizedLinear>> Fp8Reader::Describe(const ModuleTensors& module,
                                                             const StoredTensor& weight) const {
  PREPACK_TRY(CheckWeight(checkpoint_, module.name, weight));
  if (config_.NamesEmbedding(module.name)) return QuantizedEmbedding(module.name, weight);
  PREPACK_TRY_ASSIGN(const StoredTensor* scale, FindScale(module));
  const StackedScale stacked = scale == nullptr && !config_.scale_divides
                                   ? FindStackedScale(modules_, module.name)
                                   : StackedScale{.tensor = scale};
  if (stacked.tensor == nullptr) return MissingScale(module, weight);
  PREPACK_TRY_ASSIGN(const Meaning meaning, config_.MeaningOf(module.name, *stacked.tensor));
  if (scale == nullptr) {
    return DescribeSplitExpert(checkpoint_, module.name, weight, stacked, meaning);
  }
  PREPACK_TRY_ASSIGN(const StoredTensor* input, FindInput(module));
  return DescribeModule(checkpoint_, module.name, weight, *scale, input, meaning);
}

void Fp8Reader::DescribeStacks(const ModuleTensors& module, QuantizedModel& model) const {
  for (const auto& [suffix, tensor] : module.tensors) {
    const StoredTensor* scale = FindStackScale(module, suffix, *tensor);
    if (scale == nullptr || config_.scale_divides) continue;
    const Result<Meaning> meaning =
        config_.MeaningOf(fmt::format("{}.{}", module.name, suffix), *scale);
    model.AddError(meaning.ok() ? DescribeStack(checkpoint_, module, suffix, *meaning, model)
                                : meaning.status());
  }
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  const auto& [checkpoint, configs, modules, findings] = context;
  PREPACK_TRY_ASSIGN(const Config config, ParseConfigs(configs));
  const Fp8Reader reader(checkpoint, config, modules);
  for (const ModuleTensors& module : modules) {
    reader.DescribeStacks(module, model);
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr || !IsFloat8(weight->dtype)) continue;
    const Result<bool> excluded = config.Excludes(module.name);
    if (!excluded.ok()) {
      model.AddError(excluded.status());
      continue;
    }
    if (*excluded) {
      findings.Add("module-ignored-but-quantized", module.name,
                   "the config excludes the module, but its weight is FP8");
    }
    model.Add(reader.Describe(module, *weight));
  }
  PREPACK_TRY(
      RequireModules(model, config.where, "tensors named MODULE.weight of dtype F8_E4M3", "FP8"));
  return {};
}

}  // namespace prepack::fp8
