#include "formats/auto_round.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "formats/auto_round_config.h"
#include "formats/auto_round_match.h"
#include "formats/auto_round_module.h"
#include "formats/finding_tally.h"
#include "formats/fused_siblings.h"
#include "formats/module_tensors.h"
#include "formats/quantization_config.h"

namespace prepack {
namespace {

constexpr std::string_view kHead = "lm_head";

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
  } else if (entry == nullptr && module.name == kHead) {
    findings.Add("head-undeclared", kHead,
                 "lm_head is quantized, but extra_config does not name it");
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

bool DetectAutoRound(const Checkpoint& checkpoint) {
  const Result<QuantizationConfig> config = FindQuantizationConfig(checkpoint);
  return config.ok() && config->method == "auto-round";
}

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
  model.quantization_config = *declared->front().fields;
  AutoRoundEvidence evidence;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) {
      Status status = CheckAutoRoundPlain(checkpoint, module);
      if (!status.ok()) model.errors.push_back(std::move(status));
      if (IsTargetedFloat(*config, *matcher, module)) {
        findings.Add("module-targeted-but-plain", module.name,
                     "the config quantizes the module, but its weight is in floating point");
      }
      continue;
    }
    Result<std::unique_ptr<QuantizedLinear>> linear =
        DescribeAutoRoundModule(checkpoint, module, *config,
                                SchemeOf(*config, *matcher, module, findings), evidence, findings);
    if (linear.ok()) {
      model.modules.push_back(*std::move(linear));
    } else {
      model.errors.push_back(std::move(linear).status());
    }
  }
  if (model.modules.empty() && model.errors.empty()) {
    return Malformed(config->where, "the config declares quantized weights, but no tensor is one")
        .Expected("tensors named MODULE.qweight")
        .Hint("The config may belong to another checkpoint, or shards are missing")
        .Id(FindingId("nothing-quantized"));
  }
  Status status =
      CheckGptqZeros(evidence.sample, evidence.zeros, config->where, kAutoRoundZerosHint, findings);
  if (!status.ok()) return status;
  ReportFusedSiblings(modules, model, findings);
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
