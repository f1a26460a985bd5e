#pragma once

// A check that many machines share: each reads a part of the data and writes a report, and the
// reports together give what one machine would have found (measure/measurements.h).

#include <filesystem>
#include <span>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/check/check.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

// What one part found: a text to be kept in a file. What is wrong with the checkpoint is in it, and
// no error. kUsage for a check of headers only, of which there are no parts.
Result<PartReport> CheckPart(const CheckOptions& options, const Part& part, Progress& progress);

// The report of all parts together, from theirs. The checkpoint and the baseline must be there,
// too: their headers, norms and some of the embedding are read. kUsage if the reports are not those
// of all parts of a check with these options of this checkpoint.
Result<CheckReport> MergeCheck(const CheckOptions& options,
                               std::span<const std::filesystem::path> reports, Progress& progress);

}  // namespace prepack
