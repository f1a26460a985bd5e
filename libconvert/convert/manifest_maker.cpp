#include "convert/manifest_maker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/version.h"
#include "convert/output_hash.h"
#include "convert/source_hash.h"

namespace prepack {
namespace {

class ManifestMaker {
 public:
  ManifestMaker(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
                const std::vector<SafetensorsWriter>& writers, const ShardFiller& filler)
      : checkpoint_(checkpoint), plan_(plan), shards_(shards), writers_(writers), filler_(filler) {}

  TensorRecord RecordOf(const OutputSlot& slot) const;
  ModuleRecord RecordOf(const ModulePlan& plan, size_t unit) const;
  void AddUnits(Manifest& manifest) const;
  void AddReasons(Manifest& manifest) const;
  void AddShards(Manifest& manifest) const;

 private:
  const Checkpoint& checkpoint_;
  const Plan& plan_;
  const OutputShards& shards_;
  const std::vector<SafetensorsWriter>& writers_;
  const ShardFiller& filler_;
};

TensorRecord ManifestMaker::RecordOf(const OutputSlot& slot) const {
  const SafetensorsHeader& header = writers_[slot.shard].header();
  const TensorInfo& tensor = header.tensors[slot.index];
  return {.tensor = tensor.name,
          .file = shards_.names[slot.shard],
          .offset = header.data_start + tensor.begin,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .xxh3_128 = filler_.OutputHash(slot)};
}

ModuleRecord ManifestMaker::RecordOf(const ModulePlan& plan, size_t unit) const {
  ModuleRecord record;
  record.layout = plan.chosen->id;
  record.scheme = plan.request.scheme;
  record.n = plan.request.n;
  record.k = plan.request.k;
  record.stored_scale_dtype = plan.request.stored_scale_dtype;
  record.scale_rounding = ScaleRounding(*plan.chosen, plan.request);
  record.rounded_scales = filler_.rounded_scales(unit);
  record.weights_desc = plan.request.weights_desc;
  record.onednn = plan.onednn;
  record.source_xxh3_128 = SourceHash(checkpoint_, filler_.source_hashes(), plan.ReplacedTensors());
  for (size_t part = 0; part < plan.parts.size(); ++part) {
    record.parts.emplace(plan.parts[part].name, RecordOf(shards_.units[unit].slots[part]));
  }
  return record;
}

void ManifestMaker::AddUnits(Manifest& manifest) const {
  for (size_t unit = 0; unit < shards_.units.size(); ++unit) {
    const OutputUnit& output = shards_.units[unit];
    if (output.copied != nullptr) {
      manifest.tensors.push_back(RecordOf(output.slots.front()));
      continue;
    }
    const ModulePlan& plan = plan_.modules[output.module];
    manifest.modules.emplace(plan.linear->module(), RecordOf(plan, unit));
    manifest.layouts[std::string(plan.chosen->id)] = {plan.chosen->version,
                                                      std::string(plan.chosen->fingerprint)};
  }
  std::ranges::sort(manifest.tensors, {}, &TensorRecord::tensor);
}

void ManifestMaker::AddReasons(Manifest& manifest) const {
  for (const ModulePlan& module : plan_.modules) {
    const std::string& name = module.linear->module();
    if (module.chosen == nullptr) manifest.kept.emplace(name, module.WhyRejected());
    if (module.dequantized && module.chosen != nullptr) {
      manifest.dequantized.emplace(name, module.WhyRejected());
    }
  }
}

void ManifestMaker::AddShards(Manifest& manifest) const {
  for (size_t i = 0; i < writers_.size(); ++i) {
    manifest.files[shards_.names[i]] = {
        writers_[i].file().size(),
        ShardHash(Xxh3Hex(writers_[i].header_bytes()), filler_.OutputHashes(i))};
  }
}

}  // namespace

Manifest MakeManifest(const Checkpoint& checkpoint, const QuantizedModel& model, const Plan& plan,
                      const OutputShards& shards, const std::vector<SafetensorsWriter>& writers,
                      const ShardFiller& filler) {
  Manifest manifest;
  manifest.prepack_version = kVersion;
  manifest.target = plan.target->id;
  manifest.activation_dtype = plan.activation_dtype;
  manifest.source_format = model.format;
  manifest.source_quantization_config = model.quantization_config;
  const ManifestMaker maker(checkpoint, plan, shards, writers, filler);
  maker.AddUnits(manifest);
  maker.AddReasons(manifest);
  maker.AddShards(manifest);
  return manifest;
}

}  // namespace prepack
