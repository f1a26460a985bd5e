#include "formats/gptq.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "formats/finding_tally.h"
#include "formats/gptq_config.h"
#include "formats/gptq_evidence.h"
#include "formats/json_fields.h"
#include "formats/module_match.h"
#include "formats/module_tensors.h"
#include "formats/plain_modules.h"
#include "formats/quantization_config.h"
#include "formats/qweight_model.h"

namespace prepack {

namespace {
bool IsPlainMatrix(const ModuleTensors& module) {
  const StoredTensor* weight = module.Find("weight");
  return weight != nullptr && weight->shape.size() == 2;
}

// kUnsupported for tensors that only the GPU formats of GPTQModel store; the whole checkpoint is of
// that format then, though quant_method is gptq.
Status RefuseGpuFormat(const Checkpoint& checkpoint, const ModuleTensors& module) {
  const auto refuse = [&](std::string_view suffix, std::string_view name) {
    return Unsupported(checkpoint.Where(*module.Find(suffix)),
                       fmt::format("{} weights are not read", name))
        .Found(fmt::format("tensor {}", suffix))
        .Expected("qweight, qzeros and scales")
        .Hint(
            "They are tiled for GPUs and cannot be repacked; use the GPTQ checkpoint that they "
            "were made from")
        .Id(FindingId("gptq-format"));
  };
  if (module.Find("B") != nullptr && module.Find("s_channel") != nullptr) return refuse("B", "QQQ");
  if (module.Find("B") != nullptr && module.Find("s") != nullptr) return refuse("B", "Marlin");
  if (module.Find("trellis") != nullptr) return refuse("trellis", "EXL3");
  return {};
}

// A module that has parts of a quantized weight, but not the codes.
Status CheckOrphans(const Checkpoint& checkpoint, const ModuleTensors& module) {
  for (const std::string_view suffix : {"qzeros", "g_idx", "scales"}) {
    const StoredTensor* orphan = module.Find(suffix);
    if (orphan == nullptr || (suffix == "scales" && module.Find("weight") != nullptr)) continue;
    return Malformed(module.name, "the tensor qweight of a quantized module is missing")
        .Found(checkpoint.Where(*orphan))
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-missing"));
  }
  return {};
}

constexpr std::string_view kZerosHint =
    "If the weights are right, set checkpoint_format to the other of \"gptq\" and \"gptq_v2\" in "
    "every copy of the quantization config";

class Reader {
 public:
  Reader(const Checkpoint& checkpoint, const GptqConfig& config, FindingTally& findings)
      : checkpoint_(checkpoint), config_(config), findings_(findings) {}

  Result<std::unique_ptr<QuantizedLinear>> Describe(const ModuleTensors& module) {
    const Result<GptqSettings> settings = config_.SettingsOf(module.name);
    if (!settings.ok()) return settings.status();
    Status status = ReportExcluded(module);
    if (!status.ok()) return status;
    Result<std::unique_ptr<QuantizedLinear>> linear =
        DescribeGptqModule(checkpoint_, module, *settings, findings_);
    if (!linear.ok()) return linear;
    const Result<GptqZeroSample> sample = SampleGptqZeros(checkpoint_, module, *settings);
    if (!sample.ok()) return sample.status();
    status = CheckGptqZeros(*sample, settings->zeros, module.name, kZerosHint, findings_);
    if (!status.ok()) return status;
    if (settings->zeros == config_.settings.zeros) evidence_ += *sample;
    return linear;
  }

  // A layer that the config wants quantized and that is not.
  Status ReportPlain(const ModuleTensors& module) {
    if (!IsPlainMatrix(module) || !CheckModuleName(module.name).ok()) return {};
    if (IsOutputHead(module.name)) {
      if (config_.lm_head) {
        findings_.Add("module-targeted-but-plain", module.name,
                      "lm_head is true, but the output head is not quantized");
      }
      return {};
    }
    if (!module.name.ends_with("_proj") || !InBlockModules(module.name)) return {};
    const Result<const GptqRule*> rule = config_.RuleOf(module.name);
    if (!rule.ok()) return rule.status();
    if (*rule != nullptr) {
      Status status = config_.ReportOrder(module.name, **rule, findings_);
      if (!status.ok() || (*rule)->exclude) return status;
    }
    plain_.Add(module.name, "the config includes the module, but it is not quantized");
    return {};
  }

  void ReportTargeted(const QuantizedModel& model) { plain_.Report(model, findings_); }

  Status ReportUnmatched(const std::vector<ModuleTensors>& modules) {
    std::vector<std::string> unmatched;
    for (const GptqRule& rule : config_.rules) {
      const Result<bool> matched = MatchesAny(rule, modules);
      if (!matched.ok()) return matched.status();
      if (!*matched) unmatched.push_back(fmt::format("\"{}\"", Printable(rule.text)));
    }
    if (unmatched.empty()) return {};
    const size_t count = unmatched.size();
    constexpr size_t kMaxShown = 8;
    if (count > kMaxShown) {
      unmatched.resize(kMaxShown);
      unmatched.emplace_back("…");
    }
    findings_.Add("config-pattern-unmatched", FieldPath(config_.settings.where, "dynamic"),
                  fmt::format("{} of {} entries match no module of the checkpoint: {}", count,
                              config_.rules.size(), fmt::join(unmatched, ", ")));
    return {};
  }

  // All modules together, where each by itself is too small.
  Status CheckEvidence() {
    return CheckGptqZeros(evidence_, config_.settings.zeros,
                          FieldPath(config_.settings.where, "checkpoint_format"), kZerosHint,
                          findings_);
  }

 private:
  static Result<bool> MatchesAny(const GptqRule& rule, const std::vector<ModuleTensors>& modules) {
    for (const ModuleTensors& module : modules) {
      const bool is_layer = module.Find("qweight") != nullptr || IsPlainMatrix(module);
      if (!is_layer || !CheckModuleName(module.name).ok()) continue;
      Result<bool> matches = rule.regex.MatchesStart(module.name);
      if (!matches.ok() || *matches) return matches;
    }
    return false;
  }

  bool InBlockModules(std::string_view module) const {
    const auto& names = config_.block_modules;
    return names.empty() || std::ranges::any_of(names, [&](const std::string& name) {
             return module.find(name) != std::string_view::npos;
           });
  }

  // A layer that the config wants plain and that is quantized.
  Status ReportExcluded(const ModuleTensors& module) {
    const Result<const GptqRule*> found = config_.RuleOf(module.name);
    if (!found.ok()) return found.status();
    const GptqRule* rule = *found;
    if (rule != nullptr) {
      Status status = config_.ReportOrder(module.name, *rule, findings_);
      if (!status.ok()) return status;
    }
    if (rule != nullptr && rule->exclude) {
      findings_.Add("module-ignored-but-quantized", module.name,
                    fmt::format("dynamic excludes it with \"{}\", but it is quantized",
                                Printable(rule->text)));
    } else if (IsOutputHead(module.name) && !config_.lm_head) {
      findings_.Add("module-ignored-but-quantized", module.name,
                    "lm_head is not true, but the output head is quantized");
    } else if (!IsOutputHead(module.name) && !InBlockModules(module.name)) {
      findings_.Add("module-ignored-but-quantized", module.name,
                    "modules_in_block_to_quantize does not name it, but it is quantized");
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const GptqConfig& config_;
  FindingTally& findings_;
  GptqZeroSample evidence_;
  PlainModules plain_;
};

}  // namespace

Result<QuantizedModel> ReadGptq(const Checkpoint& checkpoint) {
  const Result<std::vector<QuantizationConfig>> copies = FindQuantizationConfigs(checkpoint);
  if (!copies.ok()) return copies.status();
  FindingTally findings;
  const Result<GptqConfig> config = ParseGptqConfigs(*copies, findings);
  if (!config.ok()) return config.status();

  QuantizedModel model;
  model.format = "gptq";
  model.quantization_config = copies->front().fields;
  Reader reader(checkpoint, *config, findings);
  const std::vector<ModuleTensors> modules = GroupByModule(checkpoint);
  for (const ModuleTensors& module : modules) {
    Status status = RefuseGpuFormat(checkpoint, module);
    if (!status.ok()) return status;
    if (module.Find("qweight") != nullptr) {
      model.Add(reader.Describe(module));
      continue;
    }
    status = CheckOrphans(checkpoint, module);
    if (!status.ok()) {
      model.errors.push_back(std::move(status));
      continue;
    }
    status = reader.ReportPlain(module);
    if (!status.ok()) return status;
  }
  Status status = RequireQweights(model, config->settings.where);
  if (status.ok()) status = reader.CheckEvidence();
  if (status.ok()) status = reader.ReportUnmatched(modules);
  if (!status.ok()) return status;
  reader.ReportTargeted(model);
  model.findings = findings.Take();
  return model;
}

}  // namespace prepack
