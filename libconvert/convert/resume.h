#ifndef PREPACK_CONVERT_RESUME_H_
#define PREPACK_CONVERT_RESUME_H_

// Goes on where a run that was interrupted left off: what its journal says is checked against the
// bytes that are in the shards.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "container/safetensors_writer.h"
#include "convert/journal.h"
#include "convert/output_shards.h"

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

}  // namespace prepack

#endif  // PREPACK_CONVERT_RESUME_H_
