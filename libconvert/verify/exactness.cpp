#include "verify/exactness.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "canonical/dequantized_linear.h"
#include "convert/output_config.h"
#include "convert/output_hash.h"
#include "convert/small_parts.h"
#include "convert/source_hash.h"
#include "layouts/table.h"
#include "verify/module_exactness.h"

namespace prepack {
namespace {

// Compares a tensor that passed through with the source.
Status CompareTensor(const PackedFolder& folder, const TensorRecord& record,
                     const Checkpoint& source, LevelResult& result) {
  constexpr uint64_t kChunkBytes = 1 << 20;
  std::vector<std::byte> found_bytes;
  std::vector<std::byte> expected_bytes;
  const std::string where = fmt::format("tensor {}", record.tensor);
  const StoredTensor* tensor = source.Find(record.tensor);
  if (tensor == nullptr) {
    result.Fail(where, "the source has no such tensor");
    return {};
  }
  if (tensor->dtype != record.dtype || tensor->shape != record.shape) {
    result.Fail(where, "the source has it with another dtype or shape");
    return {};
  }
  for (uint64_t offset = 0; offset < tensor->bytes; offset += kChunkBytes) {
    const uint64_t count = std::min(kChunkBytes, tensor->bytes - offset);
    found_bytes.resize(count);
    expected_bytes.resize(count);
    Status status = folder.Read(record, offset, found_bytes);
    if (status.ok()) status = source.Read(*tensor, offset, expected_bytes);
    if (!status.ok()) return status;
    const auto [found, expected] = std::ranges::mismatch(found_bytes, expected_bytes);
    if (found != found_bytes.end()) {
      result.Fail(where, fmt::format("it differs from the source at byte {}",
                                     offset + static_cast<uint64_t>(found - found_bytes.begin())));
      return {};
    }
  }
  return {};
}

// The manifest must name this source, and the roundings that were made.
Status CheckProvenance(const Manifest& manifest, const Checkpoint& source,
                       const QuantizedModel& model, unsigned threads, Progress& progress,
                       LevelResult& result) {
  TensorHashes hashes;
  Status status = HashTensors(source, threads, progress, hashes);
  if (!status.ok()) return status;
  if (SourceFingerprint(source, hashes) != manifest.source_fingerprint) {
    result.Fail("source",
                fmt::format("it is not the one that the folder was made from "
                            "(fingerprint found {}, expected {})",
                            SourceFingerprint(source, hashes), manifest.source_fingerprint));
  }
  for (const auto& linear : model.modules) {
    const auto record = manifest.modules.find(linear->module());
    if (record == manifest.modules.end()) continue;
    const ModuleRecord& module = record->second;
    if (SourceHash(source, hashes, ReplacedTensors(*linear, module.parts.contains("bias"))) !=
        module.source_xxh3_128) {
      result.FailModule(record->first, "the manifest has another hash of its source tensors");
    }
    const Layout* layout = FindLayout(module.layout);
    if (module.stored_scale_dtype != linear->stored_scale_dtype() || layout == nullptr ||
        module.scale_rounding != ScaleRounding(*layout, RequestOf(manifest, module))) {
      result.FailModule(record->first, "the manifest names another rounding of its scales");
    }
  }
  return {};
}

// config.json must be what convert makes of the source's, and side files must be the source's.
Status CheckSideFiles(const PackedFolder& folder, const Checkpoint& source, Progress& progress,
                      LevelResult& result) {
  const std::string expected = OutputConfig(source.config(), folder.manifest()).dump(2) + "\n";
  const auto config = folder.manifest().files.find("config.json");
  if (config == folder.manifest().files.end() || config->second.xxh3_128 != Xxh3Hex(expected)) {
    result.Fail("config.json",
                "it is not the source's with the quantization_config of this folder");
  }
  for (const std::string& name : source.side_files()) {
    const Result<File> file = File::OpenForRead(source.path() / name);
    if (!file.ok()) return file.status();
    const Result<FileRecord> record = HashFile(*file, progress);
    if (!record.ok()) return record.status();
    const auto packed = folder.manifest().files.find(name);
    if (packed == folder.manifest().files.end() || packed->second.xxh3_128 != record->xxh3_128) {
      result.Fail(name, "it differs from the file of the source");
    }
  }
  return {};
}

// Every module and tensor of the source must be somewhere in the output.
void CheckNothingIsMissing(const Manifest& manifest, const Checkpoint& source,
                           const QuantizedModel& model, LevelResult& result) {
  std::set<std::string> accounted;
  std::map<std::string, std::string> modules;  // by the tensors that belong to them
  for (const TensorRecord& tensor : manifest.tensors) accounted.insert(tensor.tensor);
  for (const auto& linear : model.modules) {
    const auto record = manifest.modules.find(linear->module());
    if (record == manifest.modules.end()) continue;
    for (std::string& name : ReplacedTensors(*linear, record->second.parts.contains("bias"))) {
      accounted.insert(std::move(name));
    }
    for (std::string& name : ReplacedTensors(*linear, true)) {
      modules.emplace(std::move(name), linear->module());
    }
  }
  for (const auto& [name, tensor] : source.tensors()) {
    if (accounted.contains(name)) continue;
    const auto module = modules.find(name);
    result.state = LevelState::kFailed;
    result.problems.push_back({module == modules.end() ? "" : module->second,
                               fmt::format("tensor {}", name),
                               "the source has it, the packed folder does not"});
  }
}

}  // namespace

Result<LevelResult> CheckExactness(const PackedFolder& folder, const Checkpoint& source,
                                   const QuantizedModel& model, Isa isa, unsigned threads,
                                   Progress& progress, ModuleFigures& figures) {
  LevelResult result{.state = LevelState::kPassed};
  progress.Begin("exactness", 2 * source.total_bytes());  // compared, then hashed
  for (const auto& [name, record] : folder.manifest().modules) {
    const QuantizedLinear* linear = model.Find(name);
    if (linear == nullptr) {
      result.FailModule(name, "the source has no such quantized module");
      continue;
    }
    const std::unique_ptr<QuantizedLinear> dequantized =
        record.scheme.code == CodeType::kBF16 ? Dequantized(*linear) : nullptr;
    const QuantizedLinear& weights = dequantized ? *dequantized : *linear;
    Scheme scheme = weights.scheme();
    scheme.activations = record.scheme.activations;  // the user chooses them
    if (linear->n() != record.n || linear->k() != record.k || scheme != record.scheme) {
      result.FailModule(name, "the source has another shape or scheme than the manifest");
      continue;
    }
    const Result<PackedModule> packed = PackedModule::Open(folder, name, record, isa);
    if (!packed.ok()) return packed.status();
    const Result<ModuleDifferences> differences =
        CompareModule(*packed, source, *linear, weights, isa, threads, progress);
    if (!differences.ok()) return differences.status();
    ModuleVerification& figure = figures.at(name);
    figure.exact = differences->none();
    figure.max_scale_difference = differences->max_scale_difference;
    if (!differences->none()) result.FailModule(name, differences->Describe());
  }
  for (const TensorRecord& tensor : folder.manifest().tensors) {
    Status status = CompareTensor(folder, tensor, source, result);
    if (!status.ok()) return status;
    progress.Add(tensor.bytes());
  }
  CheckNothingIsMissing(folder.manifest(), source, model, result);
  Status status = CheckProvenance(folder.manifest(), source, model, threads, progress, result);
  if (status.ok()) status = CheckSideFiles(folder, source, progress, result);
  if (!status.ok()) return status;
  SetModuleStates(Level::kExactness, result, nullptr, figures);
  return result;
}

}  // namespace prepack
