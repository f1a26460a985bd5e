#include "formats/auto_round.h"

#include <fmt/format.h>

#include <string>

#include "formats/auto_round_config.h"
#include "formats/auto_round_match.h"
#include "formats/auto_round_module.h"
#include "formats/finding_tally.h"
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
  AutoRoundScheme scheme = entry == nullptr ? config.scheme : ApplyEntry(config.scheme, *entry);
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
bool IsTargetedFloat(const AutoRoundConfig& config, const AutoRoundMatcher& matcher,
                     const ModuleTensors& module) {
  const StoredTensor* weight = module.Find("weight");
  if (weight == nullptr || weight->shape.size() != 2 || !module.name.ends_with("_proj") ||
      !matcher.InBlocks(module.name)) {
    return false;
  }
  const AutoRoundEntry* entry = matcher.EntryOf(module.name);
  return (entry == nullptr ? config.scheme : ApplyEntry(config.scheme, *entry)).quantized();
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
  AutoRoundEvidence evidence;
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) {
      model.AddError(CheckAutoRoundPlain(checkpoint, module));
      if (IsTargetedFloat(*config, *matcher, module)) {
        plain.Add(module.name,
                  "the config quantizes the module, but its weight is in floating point");
      }
      continue;
    }
    const AutoRoundScheme scheme = SchemeOf(*config, *matcher, module, findings);
    model.Add(DescribeAutoRoundModule(checkpoint, module, *config, scheme, evidence, findings));
  }
  Status status = RequireQweights(model, config->where);
  if (!status.ok()) return status;
  status =
      CheckGptqZeros(evidence.sample, evidence.zeros, config->where, kAutoRoundZerosHint, findings);
  if (!status.ok()) return status;
  plain.Report(model, findings);
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
