#include "convert/manifest_maker.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/version.h"
#include "container/json_writer.h"
#include "convert/output_hash.h"
#include "convert/source_hash.h"

namespace prepack {
TensorRecord ManifestMaker::RecordOf(const OutputSlot& slot) const {
  const SafetensorsHeader& header = writers_[slot.shard].header();
  const TensorInfo& tensor = header.tensors[slot.index];
  return {.tensor = tensor.name,
          .file = shards_.names[slot.shard],
          .offset = header.data_start + tensor.begin,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .xxh3_128 = filler_.OutputHash(slot).Hex()};
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
  for (const QuantizedLinear* member : plan.linear->members()) {
    record.fused.push_back({member->module(), member->n()});
  }
  record.source_xxh3_128 = SourceHash(filler_.source_hashes(), plan.ReplacedTensors());
  for (size_t part = 0; part < plan.parts.size(); ++part) {
    record.parts.emplace(plan.parts[part].name, RecordOf(shards_.units[unit].slots[part]));
  }
  return record;
}

// The units of one kind, ascending by the name of the module or tensor.
std::vector<size_t> ManifestMaker::Units(bool copied) const {
  std::vector<size_t> units;
  for (size_t i = 0; i < shards_.units.size(); ++i) {
    if ((shards_.units[i].copied != nullptr) == copied) units.push_back(i);
  }
  std::ranges::sort(units, {}, [&](size_t i) -> const std::string& {
    const OutputUnit& unit = shards_.units[i];
    return copied ? unit.copied->name : plan_.modules[unit.module].linear->module();
  });
  return units;
}

void ManifestMaker::VisitModules(const ModuleVisitor& visit) const {
  for (const size_t unit : Units(false)) {
    const ModulePlan& plan = plan_.modules[shards_.units[unit].module];
    visit(plan.linear->module(), RecordOf(plan, unit));
  }
}

void ManifestMaker::VisitTensors(const TensorVisitor& visit) const {
  for (const size_t unit : Units(true)) visit(RecordOf(shards_.units[unit].slots.front()));
}

std::vector<PackedScheme> ManifestMaker::PackedModules() const {
  const std::vector<size_t> units = Units(false);
  std::vector<PackedScheme> packed;
  packed.reserve(units.size());
  for (const size_t unit : units) {
    const ModulePlan& plan = plan_.modules[shards_.units[unit].module];
    packed.push_back({plan.linear->module(), plan.chosen->id, &plan.request.scheme});
  }
  return packed;
}

void ManifestMaker::AddLayouts(Manifest& manifest) const {
  for (const OutputUnit& unit : shards_.units) {
    if (unit.copied != nullptr) continue;
    const Layout& layout = *plan_.modules[unit.module].chosen;
    manifest.layouts.try_emplace(std::string(layout.id),
                                 LayoutRecord{layout.version, std::string(layout.fingerprint)});
  }
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
        writers_[i].file().size(), ShardHash(writers_[i].header_hash(), filler_.OutputHashes(i))};
  }
}

Manifest ManifestMaker::Make(const QuantizedModel& model) const {
  Manifest manifest;
  manifest.prepack_version = kVersion;
  manifest.target = plan_.target->id;
  manifest.activation_dtype = plan_.activation_dtype;
  manifest.source_format = model.format;
  manifest.source_quantization_config = JsonAsWritten(*model.quantization_config);
  AddLayouts(manifest);
  AddReasons(manifest);
  AddShards(manifest);
  return manifest;
}

}  // namespace prepack
