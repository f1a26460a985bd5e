#include "formats/awq.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "formats/awq_config.h"
#include "formats/awq_module.h"
#include "formats/finding_tally.h"
#include "formats/json_fields.h"
#include "formats/module_tensors.h"
#include "formats/plain_modules.h"
#include "formats/quantization_config.h"
#include "formats/qweight_model.h"

namespace prepack {
namespace {

// Why a module without qweight cannot be left as it is; OK for one that is not quantized.
Status CheckPlain(const Checkpoint& checkpoint, const ModuleTensors& module) {
  const StoredTensor* qzeros = module.Find("qzeros");
  if (qzeros == nullptr) qzeros = module.Find("scaled_zeros");
  if (qzeros != nullptr) {
    return Malformed(checkpoint.Where(*qzeros), "qweight of the module is missing")
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-orphan"));
  }
  if (const StoredTensor* scales = module.Find("scales")) {
    return Unsupported(checkpoint.Where(*scales),
                       "activation scaling of AutoAWQ (falcon, mpt, starcoder2 …) is not supported")
        .Found("scales without qweight")
        .Hint("The activation would have to be divided by them at run time")
        .Id(FindingId("awq-scaled-activation"));
  }
  return {};
}

// Where `modules_to_not_convert` contradicts the tensors, for those whose reader believes it.
void CompareNotConverted(const AwqConfig& config, const std::vector<ModuleTensors>& modules,
                         FindingTally& findings) {
  const auto names = [](const ModuleTensors& module, const std::string& entry) {
    return module.name.find(entry) != std::string_view::npos;
  };
  for (const std::string& entry : config.not_converted) {
    const auto hit = std::ranges::find_if(modules, [&](const ModuleTensors& module) {
      return module.Find("qweight") != nullptr && names(module, entry);
    });
    if (hit == modules.end()) continue;
    findings.Add("module-ignored-but-quantized", hit->name,
                 fmt::format("\"{}\" of modules_to_not_convert would also match this quantized "
                             "module in vLLM, which compares parts of names",
                             Printable(entry)));
  }
}

void ReportPlain(const AwqConfig& config, const std::vector<ModuleTensors>& modules,
                 const QuantizedModel& model, FindingTally& findings) {
  // With an empty list, vLLM looks at the tensors.
  if (config.not_converted.empty()) return;
  PlainModules plain;
  for (const ModuleTensors& module : modules) {
    const StoredTensor* weight = module.Find("weight");
    if (weight == nullptr || weight->shape.size() != 2 || !module.name.ends_with("_proj")) continue;
    const bool listed = std::ranges::any_of(config.not_converted, [&](const std::string& entry) {
      return module.name.find(entry) != std::string_view::npos;
    });
    if (listed) continue;
    plain.Add(module.name,
              "the module is not quantized, and modules_to_not_convert does not say so");
  }
  plain.Report(model, findings);
}

void CompareHead(const AwqConfig& config, bool quantized, FindingTally& findings) {
  if (config.lm_head == quantized) return;
  findings.Add("head-undeclared", "lm_head",
               quantized ? "lm_head is quantized, but the config does not say \"lm_head\": true"
                         : "the config says \"lm_head\": true, but lm_head is not quantized");
}

AwqSettings SettingsOf(const AwqConfig& config) {
  AwqSettings settings;
  settings.where = config.where;
  settings.bits = static_cast<uint32_t>(config.bits);
  settings.group_size = config.group_size;
  settings.zero_point = config.zero_point;
  settings.version = config.version;
  return settings;
}

}  // namespace

Result<QuantizedModel> ReadAwq(const Checkpoint& checkpoint) {
  const Result<std::vector<QuantizationConfig>> declared = FindQuantizationConfigs(checkpoint);
  if (!declared.ok()) return declared.status();
  FindingTally findings;
  const Result<AwqConfig> config = ParseAwqConfig(*declared);
  if (!config.ok()) return config.status();

  QuantizedModel model;
  model.format = "awq";
  model.quantization_config = declared->front().fields;
  const std::vector<ModuleTensors> modules = GroupByModule(checkpoint);
  const AwqSettings settings = SettingsOf(*config);
  bool head_quantized = false;
  for (const ModuleTensors& module : modules) {
    if (module.Find("qweight") == nullptr) {
      model.AddError(CheckPlain(checkpoint, module));
      continue;
    }
    head_quantized = head_quantized || IsOutputHead(module.name);
    model.Add(DescribeAwqModule(checkpoint, module, settings, findings));
  }
  Status status = RequireQweights(model, config->where);
  if (!status.ok()) return status;
  CompareHead(*config, head_quantized, findings);
  CompareNotConverted(*config, modules, findings);
  ReportPlain(*config, modules, model, findings);
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
