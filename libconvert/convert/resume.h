#ifndef PREPACK_CONVERT_RESUME_H_
#define PREPACK_CONVERT_RESUME_H_

// Goes on where a run that was interrupted left off: what its journal says is checked against the
// bytes that are in the shards, and against those of the source. Only what is kept is hashed.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "container/checkpoint.h"
#include "container/safetensors_writer.h"
#include "convert/journal.h"
#include "convert/output_shards.h"
#include "convert/plan.h"

namespace prepack {

// The journal at `path` when it is of this very run; nothing when there is none. kUsage when it is
// of another source, other options, another part or another prepack.
Result<std::optional<JournalContents>> FindEarlierRun(const std::filesystem::path& path,
                                                      const RunIdentity& identity,
                                                      const Part& part);

// Removes all files of a hidden folder but the shards: they are written anew.
Status RemoveAllBut(const std::filesystem::path& folder, const std::vector<std::string>& names);

// Drops the units whose bytes are not in the shards. `created`: shards that are new, and so hold
// nothing.
Status DropUnfinished(const OutputShards& shards, const std::vector<SafetensorsWriter>& writers,
                      const std::set<size_t>& created, unsigned threads, FinishedUnits& finished);

// Was each unit made of what the source holds now? kUsage when a tensor has changed: two models
// must not get into one output. Units of which the journal does not say what they were made of are
// dropped.
Status CheckSources(const Checkpoint& checkpoint, const Plan& plan, const OutputShards& shards,
                    unsigned threads, Progress& progress, FinishedUnits& finished);

}  // namespace prepack

#endif  // PREPACK_CONVERT_RESUME_H_
