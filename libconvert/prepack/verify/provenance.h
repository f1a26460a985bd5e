#ifndef PREPACK_VERIFY_PROVENANCE_H_
#define PREPACK_VERIFY_PROVENANCE_H_

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/formats/format.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/source_identity.h"
#include "prepack/verify/report/report.h"

namespace prepack {

// Exactness and the GEMM level compare what is packed with what the quantization config says of the
// source, so a config that both misread, or that is wrong itself, passes both. The size of the
// weights does not depend on it: notes modules whose weights are far too large or small for any
// working model (check/judgement.h), by a few output channels of each. Errors are those of
// the readers.
Status NoteWeightSizes(const QuantizedModel& model, LevelResult& result);

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
