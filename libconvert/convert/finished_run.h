#ifndef PREPACK_CONVERT_FINISHED_RUN_H_
#define PREPACK_CONVERT_FINISHED_RUN_H_

// Has an earlier run of the same conversion made the output already? Then --resume has nothing to
// do. All of the source is read and its hashes compared with those that the output recorded: times
// say nothing about contents, since copies keep them or make them alike, and clocks differ. Of the
// output's own files, sizes decide: what their bytes are, `verify` tells.

#include <filesystem>
#include <optional>

#include "base/progress.h"
#include "base/result.h"
#include "container/checkpoint.h"
#include "convert/manifest.h"
#include "convert/part.h"
#include "convert/run_identity.h"

namespace prepack {

// The manifest of the packed folder, or of the part, in `folder`; nothing when there is none, or
// one that does not say what it was made by. kUsage when it was made by another conversion, or
// of another source; kMalformed when it is damaged.
Result<std::optional<Manifest>> FindFinishedRun(const std::filesystem::path& folder,
                                                const RunIdentity& identity, const Part& part,
                                                const Checkpoint& source, unsigned threads,
                                                Progress& progress);

}  // namespace prepack

#endif  // PREPACK_CONVERT_FINISHED_RUN_H_
