#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/isa.h"
#include "prepack/base/status.h"
#include "prepack/formats/auto_round/reader.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/foreign.h"
#include "prepack/formats/format.h"
#include "prepack/formats/gptq/reader.h"
#include "prepack/formats/model_parts.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"
#include "prepack/formats/regex.h"

namespace prepack {

namespace {

constexpr std::array kFormats = {
    Format{"compressed-tensors", ReadCompressedTensors},
    Format{"fp8", ReadFp8},
    Format{"fbgemm-fp8", ReadFp8},
    Format{"modelopt", ReadModelOpt},
    Format{"quark", ReadQuark},
    Format{"awq", ReadAwq},
    Format{"auto-round", ReadAutoRound},
    Format{"gptq", ReadGptq},
};

std::string KnownFormats() {
  std::string known;
  for (const Format& format : kFormats) {
    if (!known.empty()) known += ", ";
    known += format.id;
  }
  return known;
}

// What is left out of a folder because the same model lies there once more (checkpoint.h).
void ReportSecondCopies(const Checkpoint& checkpoint, FindingTally& findings) {
  for (const std::string& name : checkpoint.left_out()) {
    if (!name.ends_with(".safetensors")) continue;
    findings.Add("weights-second-copy", name,
                 "the model once more, under Mistral's own names; the other files were read");
  }
}

// The keys of all copies of the config, before a reader looks at what it knows.
Status CheckAllKeys(const Checkpoint& checkpoint, FindingTally& findings) {
  PREPACK_TRY_ASSIGN(const std::vector<QuantizationConfig> configs,
                     FindQuantizationConfigs(checkpoint));
  for (const QuantizationConfig& config : configs) {
    PREPACK_TRY(CheckConfigKeys(config, findings));
  }
  return {};
}

// Where a reader finds nothing: what is there may be weights that no reader takes, and that is the
// reason then.
Result<QuantizedModel> ExamineUnread(const Checkpoint& checkpoint, const QuantizationConfig& config,
                                     Status nothing) {
  if (nothing.id() != "nothing-quantized") return nothing;
  QuantizedModel model;
  model.format = config.method;
  model.quantization_config = config.fields;
  ReportForeignModules(checkpoint, GroupByModule(checkpoint), model);
  if (model.errors.empty()) return nothing;
  return model;
}

}  // namespace

void QuantizedModel::Add(Result<std::unique_ptr<QuantizedLinear>> module) {
  if (module.ok()) {
    modules.push_back(*std::move(module));
  } else {
    errors.push_back(module.status());
  }
}

void QuantizedModel::AddError(Status status) {
  if (!status.ok()) errors.push_back(std::move(status));
}

const QuantizedLinear* QuantizedModel::Find(std::string_view module) const {
  const auto it = std::ranges::lower_bound(
      modules, module, {}, [](const auto& linear) { return std::string_view(linear->module()); });
  return it != modules.end() && (*it)->module() == module ? it->get() : nullptr;
}

std::span<const Format> AllFormats() {
  return kFormats;
}

Result<QuantizedModel> ExamineQuantizedModel(const Checkpoint& checkpoint) {
  PREPACK_TRY(ChooseIsa().status());
  const RegexBudget of_all_patterns;
  PREPACK_TRY_ASSIGN(const QuantizationConfig config, FindQuantizationConfig(checkpoint));
  if (config.method == "prepack") {
    return Unsupported(config.where, "the folder is already packed")
        .Hint("Convert the source checkpoint that it was made from")
        .Id(FindingId("already-packed"));
  }
  const auto* const format = std::ranges::find(kFormats, config.method, &Format::id);
  if (format == kFormats.end()) return RefuseMethod(config.method, config.where, KnownFormats());
  FindingTally findings;
  PREPACK_TRY(CheckAllKeys(checkpoint, findings));
  ReportSecondCopies(checkpoint, findings);
  Result<QuantizedModel> model = format->read(checkpoint);
  if (!model.ok()) return ExamineUnread(checkpoint, config, model.status());
  PREPACK_TRY(ReportLeftBehind(checkpoint, findings));
  std::vector<Finding> found = findings.Take();
  model->findings.insert(model->findings.end(), found.begin(), found.end());
  const std::vector<ModuleTensors> modules = GroupByModule(checkpoint);
  ReportForeignModules(checkpoint, modules, *model);
  ReportFusedSiblings(modules, *model);
  std::ranges::move(FindMissingParts(checkpoint, *model), std::back_inserter(model->errors));
  return model;
}

Result<QuantizedModel> ReadQuantizedModel(const Checkpoint& checkpoint,
                                          const AcceptedFindings& accepted) {
  const AcceptanceScope scope(accepted);
  Result<QuantizedModel> model = ExamineQuantizedModel(checkpoint);
  if (model.ok() && !model->errors.empty()) return std::move(model->errors.front());
  return model;
}

}  // namespace prepack
