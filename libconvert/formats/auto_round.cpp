#include "formats/auto_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "formats/auto_round_config.h"
#include "formats/auto_round_match.h"
#include "formats/auto_round_module.h"
#include "formats/auto_round_zeros.h"
#include "formats/finding_tally.h"
#include "formats/json_fields.h"
#include "formats/module_match.h"
#include "formats/module_tensors.h"
#include "formats/plain_modules.h"
#include "formats/quantization_config.h"
#include "formats/qweight_model.h"

namespace prepack {
namespace {

// What the config says of a quantized module. Where it says that there is nothing quantized, the
// tensors win: the scheme is then that of the whole model.
AutoRoundScheme SchemeOf(const AutoRoundConfig& config, const AutoRoundMatcher& matcher,
                         const ModuleTensors& module, FindingTally& findings) {
  const AutoRoundEntry* entry = matcher.EntryOf(module.name);
  AutoRoundScheme scheme = matcher.SchemeOf(module.name);
  if (!scheme.quantized()) {
    findings.Add("module-ignored-but-quantized", module.name,
                 fmt::format("{} says {} bits, but the module is quantized",
                             entry == nullptr ? config.where : entry->where, scheme.bits));
  } else if (entry == nullptr && IsOutputHead(module.name)) {
    findings.Add("head-undeclared", module.name,
                 "the output head is quantized, but extra_config does not name it");
  } else if (entry == nullptr && !matcher.InBlocks(module.name)) {
    findings.Add("module-ignored-but-quantized", module.name,
                 "the module lies outside the blocks that the config names, but it is quantized");
  }
  return scheme;
}

// A layer in floating point that the config wants quantized. Routers, heads and embeddings usually
// are, and are not worth a word.
bool IsTargetedFloat(const AutoRoundMatcher& matcher, const ModuleTensors& module) {
  const StoredTensor* weight = module.Find("weight");
  if (weight == nullptr || weight->shape.size() != 2 || !module.name.ends_with("_proj") ||
      !matcher.InBlocks(module.name)) {
    return false;
  }
  return matcher.SchemeOf(module.name).quantized();
}

// A head that extra_config quantizes, and that AutoRound left as it was.
void ReportPlainHead(const AutoRoundMatcher& matcher, const ModuleTensors& module,
                     FindingTally& findings) {
  const AutoRoundEntry* entry = matcher.EntryOf(module.name);
  const StoredTensor* weight = module.Find("weight");
  if (entry == nullptr || weight == nullptr || !IsOutputHead(module.name)) return;
  AutoRoundScheme scheme = matcher.SchemeOf(module.name);
  if (!scheme.quantized()) return;
  findings.Add("head-undeclared", module.name,
               fmt::format("{} says {} bits, but the output head is stored as {}", entry->where,
                           scheme.bits, DTypeName(weight->dtype)));
}

// AutoRound quantizes what the model class never loads, layer or not: the copy of the embedding
// that some multi-token prediction layers bring. The model's own embedding lies beside it.
bool IsCopyOfEmbedding(const ModuleTensors& module, const std::vector<ModuleTensors>& modules) {
  if (ClassOfModule(module.name) != ModuleClass::kEmbedding) return false;
  const auto last = [](std::string_view name) { return name.substr(name.rfind('.') + 1); };
  return std::ranges::any_of(modules, [&](const ModuleTensors& other) {
    const StoredTensor* weight = other.Find("weight");
    return weight != nullptr && weight->shape.size() == 2 && last(other.name) == last(module.name);
  });
}

}  // namespace

Result<QuantizedModel> ReadAutoRound(const Checkpoint& checkpoint) {
  const Result<std::vector<QuantizationConfig>> declared = FindQuantizationConfigs(checkpoint);
  if (!declared.ok()) return declared.status();
  FindingTally findings;
  const Result<AutoRoundConfig> config = ParseAutoRoundConfig(*declared, findings);
  if (!config.ok()) return config.status();
  const std::vector<ModuleTensors> modules = GroupByModule(checkpoint);
  const Result<AutoRoundMatcher> matcher = AutoRoundMatcher::Make(*config, modules, findings);
  if (!matcher.ok()) return matcher.status();

  QuantizedModel model;
  model.format = "auto-round";
  model.quantization_config = declared->front().fields;
  const AutoRoundZeros zeros = ChooseAutoRoundZeros(checkpoint, modules, *config, *matcher);
  if (!zeros.contradicts.empty()) {
    findings.Add(
        "autoround-model-free-zeros", FieldPath(config->where, "packing_format"),
        fmt::format("the calibration-free export stores z - 1 although packing_format says "
                    "that z is stored ({}); z - 1 is used (if z is right, set "
                    "packing_format to \"auto_round:gptqmodel\")",
                    zeros.contradicts));
  }
  GptqZeroSample sample;
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) {
      model.AddError(CheckAutoRoundPlain(checkpoint, module));
      if (IsTargetedFloat(*matcher, module)) {
        plain.Add(module.name,
                  "the config quantizes the module, but its weight is in floating point");
      }
      ReportPlainHead(*matcher, module, findings);
      continue;
    }
    if (IsCopyOfEmbedding(module, modules)) {
      model.kept.emplace_back(module.name);
      findings.Add(
          "embedding-copy-quantized", module.name,
          "a quantized copy of the embedding, beside the one that the model uses; it is left "
          "as it is stored");
      continue;
    }
    const AutoRoundScheme scheme = SchemeOf(*config, *matcher, module, findings);
    model.Add(DescribeAutoRoundModule(checkpoint, module, *config, scheme, zeros.zeros, sample,
                                      findings));
  }
  Status status = RequireQweights(model, config->where);
  if (!status.ok()) return status;
  status = CheckGptqZeros(sample, zeros.zeros, config->where, kAutoRoundZerosHint, findings);
  if (!status.ok()) return status;
  plain.Report(model, findings);
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
