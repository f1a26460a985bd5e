// The summary of a folder, from headers alone.

#include "prepack/inspect/inspect.h"

#include <deque>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/convert/plan.h"
#include "prepack/formats/finding.h"
#include "prepack/io/output_folder.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// What a report is a view of.
struct Source {
  Checkpoint checkpoint;
  std::optional<QuantizedModel> model = {};              // of a checkpoint
  std::optional<Manifest> manifest = {};                 // of a packed folder
  std::deque<std::vector<std::string_view>> parts = {};  // names of the tensors of packed modules
};

void DescribeFiles(const Checkpoint& checkpoint, InspectReport& report) {
  for (const CheckpointFile& file : checkpoint.files()) {
    report.files.push_back({.name = file.name,
                            .bytes = file.file.size(),
                            .tensors = file.tensors,
                            .data_start = file.data_start});
  }
  report.tensors.reserve(checkpoint.tensors().size());
  for (const StoredTensor& tensor : checkpoint.tensors()) report.tensors.push_back(&tensor);
  report.tensor_bytes = checkpoint.total_bytes();
}

void DescribeSource(Source& source, InspectReport& report) {
  Result<QuantizedModel> read = ReadQuantizedModel(source.checkpoint);
  if (!read.ok()) {
    report.unreadable = std::move(read).status();
    return;
  }
  const QuantizedModel& model = source.model.emplace(*std::move(read));
  report.format = model.format;
  report.targets = UseOfTargets(source.checkpoint, model);
  report.findings = model.findings;
  report.modules.reserve(model.modules.size());
  for (const auto& linear : model.modules) {
    report.modules.push_back({.module = linear->module(),
                              .scheme = linear->scheme(),
                              .layout = "",
                              .n = linear->n(),
                              .k = linear->k(),
                              .bytes = linear->source_bytes(),
                              .tensors = linear->source_tensors()});
  }
}

void DescribePacked(Source& source, InspectReport& report) {
  const Manifest& manifest = *source.manifest;
  report.format = manifest.source_format;
  report.target = manifest.target;
  report.origin = {.prepack_version = manifest.prepack_version,
                   .source_path = manifest.source_path,
                   .source_hub = manifest.source_hub,
                   .source_fingerprint = manifest.source_fingerprint,
                   .activation_dtype = std::string(ActivationDTypeName(manifest.activation_dtype)),
                   .options = manifest.run ? manifest.run->options : ""};
  for (const auto& [name, record] : manifest.modules) {
    ModuleSummary module{.module = name,
                         .scheme = record.scheme,
                         .layout = record.layout,
                         .n = record.n,
                         .k = record.k,
                         .fused = record.fused.empty() ? nullptr : &record.fused};
    std::vector<std::string_view>& parts = source.parts.emplace_back();
    for (const auto& [part, tensor] : record.parts) {
      module.bytes += tensor.bytes();
      parts.emplace_back(tensor.tensor);
    }
    module.tensors = parts;
    report.modules.push_back(module);
  }
  FindingTally findings;
  for (const auto& [module, why] : manifest.kept) {
    findings.Add("module-kept", module, "left as stored: " + why);
  }
  report.findings = findings.Take();
}

}  // namespace

std::string_view FolderKindName(FolderKind kind) {
  switch (kind) {
    case FolderKind::kCheckpoint:
      return "checkpoint";
    case FolderKind::kPacked:
      return "packed folder";
    case FolderKind::kSafetensorsFile:
      return "safetensors file";
  }
  return "";
}

double ModuleSummary::BitsPerWeight() const {
  return 8.0 * static_cast<double>(bytes) / (static_cast<double>(n) * static_cast<double>(k));
}

std::optional<FoundModule> InspectReport::FindModule(std::string_view name) const {
  for (const ModuleSummary& module : modules) {
    if (module.module == name) {
      return FoundModule{.module = &module, .channels = {.first = 0, .n = module.n}};
    }
    if (module.fused == nullptr) continue;
    if (const auto channels = module.fused->ChannelsOf(name)) {
      return FoundModule{.module = &module, .channels = *channels};
    }
  }
  return std::nullopt;
}

Result<InspectReport> Inspect(const std::filesystem::path& path) {
  PREPACK_TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::Open(path));
  const auto source = std::make_shared<Source>(Source{.checkpoint = std::move(checkpoint)});
  InspectReport report;
  report.path = path.string();
  report.source = source;
  DescribeFiles(source->checkpoint, report);
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    report.kind = FolderKind::kSafetensorsFile;
  } else if (std::filesystem::exists(path / kManifestName, error)) {
    report.kind = FolderKind::kPacked;
    PREPACK_TRY_ASSIGN(source->manifest, ReadManifest(path));
    DescribePacked(*source, report);
  } else {
    DescribeSource(*source, report);
  }
  return report;
}

}  // namespace prepack
