#ifndef PREPACK_VERIFY_INTEGRITY_H_
#define PREPACK_VERIFY_INTEGRITY_H_

#include "base/isa.h"
#include "base/progress.h"
#include "base/result.h"
#include "verify/module_states.h"
#include "verify/packed_folder.h"
#include "verify/report.h"

namespace prepack {

// Level 1: is the folder what was written? Sizes and hashes of all files and of all tensors in
// them, from one pass; headers against the manifest; packing fingerprints recomputed with today's
// code. With a sample, the bytes of shards are hashed only where they are parts of its modules, and
// notes say what was not. Sets the states of the modules in `figures`. Fails only when a check
// cannot be carried out at all.
Result<LevelResult> CheckIntegrity(const PackedFolder& folder, const ModuleSample* sample, Isa isa,
                                   unsigned threads, Progress& progress, ModuleFigures& figures);

}  // namespace prepack

#endif  // PREPACK_VERIFY_INTEGRITY_H_
