#ifndef PREPACK_CONVERT_MANIFEST_MAKER_H_
#define PREPACK_CONVERT_MANIFEST_MAKER_H_

// What the manifest says of a conversion whose shards are filled.

#include <cstddef>
#include <vector>

#include "convert/manifest.h"
#include "convert/output_config.h"
#include "convert/output_shards.h"
#include "convert/plan.h"
#include "convert/shard_filler.h"
#include "formats/format.h"

namespace prepack {

class ManifestMaker : public ManifestRecords {
 public:
  // The arguments must live longer.
  ManifestMaker(const Plan& plan, const OutputShards& shards,
                const std::vector<SafetensorsWriter>& writers, const ShardFiller& filler)
      : plan_(plan), shards_(shards), writers_(writers), filler_(filler) {}

  // All but the modules and tensors, which come one by one; and what the caller adds: fingerprint
  // and path of the source, whether scales are exact, and the files that are no shards.
  Manifest Make(const QuantizedModel& model) const;
  void VisitModules(const ModuleVisitor& visit) const override;
  void VisitTensors(const TensorVisitor& visit) const override;
  // Ascending by module.
  std::vector<PackedScheme> PackedModules() const;

 private:
  std::vector<size_t> Units(bool copied) const;
  TensorRecord RecordOf(const OutputSlot& slot) const;
  ModuleRecord RecordOf(const ModulePlan& plan, size_t unit) const;
  void AddLayouts(Manifest& manifest) const;
  void AddReasons(Manifest& manifest) const;
  void AddShards(Manifest& manifest) const;

  const Plan& plan_;
  const OutputShards& shards_;
  const std::vector<SafetensorsWriter>& writers_;
  const ShardFiller& filler_;
};

}  // namespace prepack

#endif  // PREPACK_CONVERT_MANIFEST_MAKER_H_
