// Is this the folder that convert would make of this source? The checks that do not concern the
// numbers of a packed module: fingerprints and hashes of the source, config.json, side files, and
// which modules were packed, kept or dequantized.

#include "prepack/verify/exactness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/memory.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/json_writer.h"
#include "prepack/io/file.h"
#include "prepack/layouts/table.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/packed/checkpoint_config.h"
#include "prepack/packed/output_config.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/small_parts.h"
#include "prepack/verify/measured.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

// Enough rows to notice a factor of a thousand.
constexpr uint64_t kSampledRows = 8;

uint64_t SampledRows(const QuantizedLinear& linear) {
  const uint64_t rows = std::min(linear.n(), kSampledRows);
  return rows * linear.k() < kMinWeights ? 0 : rows;
}

Result<WeightSize> SizeOfWeights(const QuantizedLinear& linear, uint64_t rows) {
  DequantizeBuffers buffers;
  std::vector<float> weights(rows * linear.k());
  PREPACK_TRY(DequantizeRows(linear, linear.n() / 2 / rows * rows, rows, buffers, weights));
  double squares = 0;
  for (const float weight : weights) squares += double{weight} * weight;
  // The mean of the squares times K.
  return WeightSize{std::sqrt(squares / static_cast<double>(rows))};
}

}  // namespace

Result<WeightSize> MeasureWeightSize(const QuantizedLinear& linear, Measurements& measured) {
  const uint64_t rows = SampledRows(linear);
  if (rows == 0) return WeightSize{};
  const std::string unit = UnitOfModule(linear.module());
  return measured.Of<WeightSize>({.kind = "size", .name = linear.module(), .unit = unit},
                                 [&] { return SizeOfWeights(linear, rows); });
}

Status NoteWeightSizes(const QuantizedModel& model, const WeightSizes& known,
                       Measurements& measured, LevelResult& result) {
  for (const auto& linear : model.modules) {
    if (CancellationRequested()) return Interrupted(linear->module());
    double size = 0;
    if (const auto it = known.find(linear.get()); it != known.end()) {
      size = it->second;
    } else {
      PREPACK_TRY_ASSIGN(const WeightSize own, MeasureWeightSize(*linear, measured));
      size = own.value;
    }
    if (size == 0 || (size >= kSmallestSize && size <= kLargestSize)) continue;
    result.notes.push_back(
        {std::string(linear->module()), fmt::format("module {}", linear->module()),
         fmt::format("the rms of the weights times the root of K is {:.3g} ({} to {} in working "
                     "models): the source, or the way prepack reads its config, is suspect",
                     size, kSmallestSize, kLargestSize)});
  }
  return {};
}

namespace {

// The source tensors that a packed module replaces.
std::vector<const StoredTensor*> TensorsOf(const Checkpoint& source, const QuantizedLinear& linear,
                                           const ModuleRecord& record) {
  return ReplacedTensors(source, linear, record.parts.contains("bias"));
}

void CheckFingerprint(const Manifest& manifest, const TensorHashes& hashes, LevelResult& result) {
  const std::string found = SourceFingerprint(hashes);
  if (found == manifest.source_fingerprint) return;
  result.Fail("source", fmt::format("not the source that the folder was made from (fingerprint "
                                    "found {}, expected {})",
                                    found, manifest.source_fingerprint));
}

// Fingerprint of the whole source, or hashes of the source tensors of the sample.
Status HashSource(const Manifest& manifest, const Checkpoint& source, const QuantizedModel& model,
                  const ModuleSample* sample, Measurements& measured, unsigned threads,
                  Progress& progress, TensorHashes& hashes, LevelResult& result) {
  std::vector<const StoredTensor*> tensors;
  if (sample == nullptr) {
    for (const StoredTensor& tensor : source.tensors()) {
      if (!hashes.Of(tensor)) tensors.push_back(&tensor);
    }
    PREPACK_TRY(HashSourceTogether(std::move(tensors), measured, threads, progress, hashes));
    CheckFingerprint(manifest, hashes, result);
    return {};
  }
  for (const auto& linear : model.modules) {
    const auto record = manifest.modules.find(linear->module());
    if (record == manifest.modules.end() || !sample->contains(record->first)) continue;
    const std::vector<const StoredTensor*> own = TensorsOf(source, *linear, record->second);
    tensors.insert(tensors.end(), own.begin(), own.end());
  }
  std::ranges::sort(tensors);
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  result.notes.push_back({"", "sample",
                          fmt::format("the fingerprint of the source was not computed: of {} "
                                      "tensors, only the {} in the sample were hashed",
                                      source.tensors().size(), tensors.size())});
  return HashSourceTogether(std::move(tensors), measured, threads, progress, hashes);
}

void CheckModules(const Manifest& manifest, const QuantizedModel& model, const ModuleSample* sample,
                  const TensorHashes& hashes, LevelResult& result) {
  for (const auto& linear : model.modules) {
    const auto record = manifest.modules.find(linear->module());
    if (record == manifest.modules.end()) continue;
    const ModuleRecord& module = record->second;
    if (InSample(sample, record->first) &&
        SourceHash(hashes, TensorsOf(hashes.checkpoint(), *linear, module)) !=
            module.source_xxh3_128) {
      result.FailModule(record->first, "the manifest has another hash of its source tensors");
    }
    const Layout* layout = FindLayout(module.layout);
    if (module.stored_scale_dtype != linear->stored_scale_dtype() || layout == nullptr ||
        module.scale_rounding != ScaleRounding(*layout, RequestOf(manifest, module))) {
      result.FailModule(record->first, "the manifest names another rounding of its scales");
    }
  }
}

// config.json must be what convert makes of the source's, and side files must be the source's.
Status CheckSideFiles(const PackedFolder& folder, const Checkpoint& source, Measurements& measured,
                      Progress& progress, LevelResult& result) {
  const Manifest& manifest = folder.manifest();
  const std::string expected = OutputConfigText(source.config_text(), manifest,
                                                OwnRecords(manifest), PackedSchemes(manifest));
  const auto config = folder.manifest().files.find("config.json");
  if (config == folder.manifest().files.end() || config->second.xxh3_128 != Xxh3Hex(expected)) {
    result.Fail("config.json",
                "not the source's config.json with the quantization_config of this folder");
  } else if (const File* file = folder.FindFile("config.json"); file != nullptr) {
    std::string text(std::min<uint64_t>(file->size(), config->second.bytes), ' ');
    PREPACK_TRY(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
    const std::string why = WhyConfigDiffers(source.config_text(), text, StoresBf16(manifest));
    if (!why.empty()) {
      result.Fail("config.json", fmt::format("a value of the source is not kept ({})", why));
    }
  }
  for (const std::string& name : CarriedFiles(source, manifest.target)) {
    const std::string unit = UnitOfFile(name);
    const auto hash_all = [&]() -> Result<Hash128> {
      PageBuffer buffer;
      PREPACK_TRY_ASSIGN(const File file, File::OpenForRead(source.side_folder() / name));
      return HashRange({file, 0, file.size()}, buffer, progress);
    };
    PREPACK_TRY_ASSIGN(
        const Hash128 hash,
        measured.Of<Hash128>({.kind = "side", .name = name, .unit = unit}, hash_all));
    const auto packed = folder.manifest().files.find(name);
    if (packed == folder.manifest().files.end()) {
      result.Fail(name, "the source has this file, but the packed folder does not");
    } else if (packed->second.xxh3_128 != hash.Hex()) {
      result.Fail(name, "differs from the file in the source");
    }
  }
  return {};
}

// Files that neither convert makes nor the source has would change what is served.
void CheckNoFileIsAdded(const Manifest& manifest, const Checkpoint& source, LevelResult& result) {
  std::set<std::string> known = {"config.json", "model.safetensors.index.json"};
  known.merge(CarriedFiles(source, manifest.target));
  for (const TensorRecord& tensor : manifest.tensors) known.insert(tensor.file);
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) known.insert(tensor.file);
  }
  for (const auto& [name, file] : manifest.files) {
    if (!known.contains(name)) result.Fail(name, "the source has no such file");
  }
}

// The manifest must be right about which modules were packed, kept or dequantized, because
// config.json follows from it.
void CheckFates(const Manifest& manifest, const QuantizedModel& model, LevelResult& result) {
  if (manifest.source_quantization_config != JsonAsWritten(*model.quantization_config)) {
    result.Fail("prepack.json", "has another quantization config than the source");
  }
  for (const auto& linear : model.modules) {
    const bool packed = manifest.modules.contains(linear->module());
    if (packed == manifest.kept.contains(std::string(linear->module()))) {
      result.FailModule(
          std::string(linear->module()),
          packed ? "the module is packed, but the manifest says that it was kept"
                 : "the module is not packed, and the manifest does not say that it was kept");
    }
  }
  for (const auto& [name, reason] : manifest.kept) {
    if (model.Find(name) == nullptr) {
      result.Fail(fmt::format("module {}", name),
                  "the manifest says that the module was kept, but the source has no such "
                  "quantized module");
    }
  }
  for (const auto& [name, module] : manifest.modules) {
    const bool dequantized = module.scheme.code == CodeType::kBF16;
    if (dequantized != manifest.dequantized.contains(name)) {
      result.FailModule(name, "the manifest is wrong about whether the module was dequantized");
    }
  }
}

// The first packed module that the tensor belongs to, or its bias.
std::string ModuleWith(const StoredTensor& tensor, const Checkpoint& source,
                       const Manifest& manifest, const QuantizedModel& model) {
  const auto found = std::ranges::find_if(model.modules, [&](const auto& linear) {
    return manifest.modules.contains(linear->module()) &&
           std::ranges::count(ReplacedTensors(source, *linear, true), &tensor) != 0;
  });
  return found == model.modules.end() ? "" : std::string((*found)->module());
}

// Every tensor of the source must be in the output once, in a packed module or as it is.
void CheckEachIsThereOnce(const Manifest& manifest, const Checkpoint& source,
                          const QuantizedModel& model, LevelResult& result) {
  struct Fate {
    bool of_module = false;
    bool packed = false;
    bool plain = false;
  };
  std::vector<Fate> fates(source.tensors().size());
  for (const TensorRecord& record : manifest.tensors) {
    const StoredTensor* tensor = source.Find(record.tensor);
    if (tensor != nullptr) fates[NumberOf(source, *tensor)].plain = true;
  }
  for (const auto& linear : model.modules) {
    const auto record = manifest.modules.find(linear->module());
    if (record == manifest.modules.end()) continue;
    for (const StoredTensor* tensor : ReplacedTensors(source, *linear, true)) {
      fates[NumberOf(source, *tensor)].of_module = true;
    }
    for (const StoredTensor* tensor : TensorsOf(source, *linear, record->second)) {
      fates[NumberOf(source, *tensor)].packed = true;
    }
  }
  for (size_t i = 0; i < fates.size(); ++i) {
    const Fate& fate = fates[i];
    if (fate.of_module ? !fate.plain && fate.packed : fate.plain) continue;
    const StoredTensor& tensor = source.tensors()[i];
    result.state = LevelState::kFailed;
    result.problems.push_back({fate.of_module ? ModuleWith(tensor, source, manifest, model) : "",
                               fmt::format("tensor {}", tensor.name),
                               fate.plain ? "it lies beside the packed module that it belongs to: "
                                            "runtimes ignore it or use it twice"
                                          : "the source has it, but the packed folder does not"});
  }
}

}  // namespace

Status CheckProvenance(const PackedFolder& folder, const Checkpoint& source,
                       const QuantizedModel& model, const ModuleSample* sample,
                       Measurements& measured, unsigned threads, Progress& progress,
                       TensorHashes& hashes, LevelResult& result) {
  const Manifest& manifest = folder.manifest();
  CheckEachIsThereOnce(manifest, source, model, result);
  CheckNoFileIsAdded(manifest, source, result);
  CheckFates(manifest, model, result);
  PREPACK_TRY(
      HashSource(manifest, source, model, sample, measured, threads, progress, hashes, result));
  CheckModules(manifest, model, sample, hashes, result);
  return CheckSideFiles(folder, source, measured, progress, result);
}

}  // namespace prepack
