#ifndef PREPACK_VERIFY_PROVENANCE_H_
#define PREPACK_VERIFY_PROVENANCE_H_

#include "base/progress.h"
#include "base/status.h"
#include "convert/source_hash.h"
#include "formats/format.h"
#include "verify/module_states.h"
#include "verify/packed_folder.h"

namespace prepack {

// What exactness asks beyond the bytes of modules and tensors: the manifest must name this source,
// by the hashes of its tensors, and the roundings that were made; nothing of the source may be
// missing; config.json and side files must be the source's. `hashes` holds those of source tensors
// that are known already. With a sample only the source tensors of its modules are hashed, and
// notes say so.
Status CheckProvenance(const PackedFolder& folder, const Checkpoint& source,
                       const QuantizedModel& model, const ModuleSample* sample, unsigned threads,
                       Progress& progress, TensorHashes& hashes, LevelResult& result);

}  // namespace prepack

#endif  // PREPACK_VERIFY_PROVENANCE_H_
