#ifndef PREPACK_CONVERT_MANIFEST_MAKER_H_
#define PREPACK_CONVERT_MANIFEST_MAKER_H_

#include <vector>

#include "container/checkpoint.h"
#include "convert/manifest.h"
#include "convert/output_shards.h"
#include "convert/plan.h"
#include "convert/shard_filler.h"
#include "formats/format.h"

namespace prepack {

// What the manifest says of a conversion whose shards are filled: every module, every tensor that
// passed through, and the shards among the files. Left to the caller: fingerprint and path of the
// source, whether scales are exact, and the other files.
Manifest MakeManifest(const Checkpoint& checkpoint, const QuantizedModel& model, const Plan& plan,
                      const OutputShards& shards, const std::vector<SafetensorsWriter>& writers,
                      const ShardFiller& filler);

}  // namespace prepack

#endif  // PREPACK_CONVERT_MANIFEST_MAKER_H_
