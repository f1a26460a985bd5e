#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/isa.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/foreign.h"
#include "prepack/formats/format.h"
#include "prepack/formats/model_parts.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"
#include "prepack/formats/regex.h"

namespace prepack {

namespace {

constexpr auto kFormats = std::to_array<Format>({
#define PREPACK_FORMAT(id, reader, keys, decode) {id, reader::Read, reader::keys},
#include "prepack/formats/formats.inc"
});

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

void ReportStaleIndex(const Checkpoint& checkpoint, FindingTally& findings) {
  if (checkpoint.stale_index().empty()) return;
  findings.Add(
      "index-stale", checkpoint.stale_index(),
      fmt::format("it names other files than {}, which was read", checkpoint.files().front().name));
}

// The reader whose format the checkpoint declares.
Result<const Format*> ChooseFormat(const QuantizationConfig& config) {
  if (config.method == "prepack") {
    return Unsupported(config.where, "the folder is already packed")
        .Hint("Convert the source checkpoint that it was made from")
        .Id(FindingId("already-packed"));
  }
  const auto* const format = std::ranges::find(kFormats, config.method, &Format::id);
  if (format == kFormats.end()) return RefuseMethod(config.method, config.where, KnownFormats());
  return format;
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

void QuantizedModel::Replace(const std::set<const QuantizedLinear*>& gone,
                             std::vector<std::unique_ptr<QuantizedLinear>> instead) {
  const auto first = std::stable_partition(modules.begin(), modules.end(), [&](const auto& linear) {
    return !gone.contains(linear.get());
  });
  std::move(first, modules.end(), std::back_inserter(members));
  modules.erase(first, modules.end());
  std::move(instead.begin(), instead.end(), std::back_inserter(modules));
  std::ranges::sort(modules, {}, [](const auto& linear) { return linear->module(); });
}

std::vector<bool> TensorsInModules(const Checkpoint& checkpoint, const QuantizedModel& model) {
  std::vector<bool> inside(checkpoint.tensors().size());
  const StoredTensor* tensor = nullptr;
  for (const auto& linear : model.modules) {
    for (const std::string_view name : linear->source_tensors()) {
      tensor = checkpoint.FindAfter(tensor, name);
      if (tensor != nullptr) inside[NumberOf(checkpoint, *tensor)] = true;
    }
  }
  return inside;
}

const QuantizedLinear* QuantizedModel::Find(std::string_view module) const {
  const auto it = std::ranges::lower_bound(
      modules, module, {}, [](const auto& linear) { return std::string_view(linear->module()); });
  return it != modules.end() && (*it)->module() == module ? it->get() : nullptr;
}

const QuantizedLinear* QuantizedModel::FindNear(size_t place, std::string_view module) const {
  constexpr size_t kNear = 4;
  for (size_t i = place; i < std::min(modules.size(), place + kNear); ++i) {
    if (modules[i]->module() == module) return modules[i].get();
  }
  return Find(module);
}

std::span<const Format> AllFormats() {
  return kFormats;
}

namespace {

Result<QuantizedModel> ReadWithErrors(const Checkpoint& checkpoint,
                                      const AcceptedFindings& accepted) {
  const AcceptanceScope scope(accepted);
  PREPACK_TRY(ChooseIsa().status());
  const RegexBudget of_all_patterns;
  PREPACK_TRY_ASSIGN(const std::vector<QuantizationConfig> configs,
                     FindQuantizationConfigs(checkpoint));
  PREPACK_TRY_ASSIGN(const Format* format, ChooseFormat(configs.front()));
  FindingTally findings;
  for (const QuantizationConfig& config : configs) {
    PREPACK_TRY(CheckConfigKeys(config, findings));
  }
  ReportSecondCopies(checkpoint, findings);
  ReportStaleIndex(checkpoint, findings);
  const GroupedTensors grouped = GroupByModule(checkpoint);
  const std::vector<ModuleTensors>& modules = grouped.modules;
  QuantizedModel model;
  model.format = configs.front().method;
  model.quantization_config = configs.front().fields;
  FindingTally of_reader;
  if (Status status = format->read({checkpoint, configs, modules, of_reader}, model);
      !status.ok()) {
    // Where the reader finds nothing, there may be weights that no reader takes: those errors are
    // the reason then.
    if (status.id() != "nothing-quantized") return status;
    ReportForeignModules(checkpoint, modules, model);
    if (model.errors.empty()) return status;
    return model;
  }
  // The experts of a stacked tensor come by number, which is not the order of their names.
  if (!std::ranges::is_sorted(model.modules, {}, &QuantizedLinear::module)) {
    std::ranges::sort(model.modules, {}, &QuantizedLinear::module);
  }
  model.findings = of_reader.Take();
  PREPACK_TRY(ReportLeftBehind(checkpoint, findings));
  std::ranges::move(findings.Take(), std::back_inserter(model.findings));
  ReportForeignModules(checkpoint, modules, model);
  ReportFusedSiblings(modules, model);
  std::ranges::move(FindMissingParts(checkpoint, modules, model), std::back_inserter(model.errors));
  return model;
}

}  // namespace

Result<QuantizedModel> ExamineQuantizedModel(const Checkpoint& checkpoint,
                                             const AcceptedFindings& accepted) {
  Result<QuantizedModel> model = ReadWithErrors(checkpoint, accepted);
  GiveBackFreed();
  return model;
}

Result<QuantizedModel> ReadQuantizedModel(const Checkpoint& checkpoint,
                                          const AcceptedFindings& accepted) {
  Result<QuantizedModel> model = ExamineQuantizedModel(checkpoint, accepted);
  if (model.ok() && !model->errors.empty()) return std::move(model->errors.front());
  return model;
}

}  // namespace prepack
