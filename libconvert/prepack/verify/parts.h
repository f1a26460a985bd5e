#pragma once

// A verification that many machines share: each reads a part of the data and writes a report, and
// the reports together give the verdict of one machine (measure/measurements.h).

#include <filesystem>
#include <span>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/packed/run_identity.h"
#include "prepack/verify/verify.h"

namespace prepack {

// What one part found: a text to be kept in a file. What is wrong with the folder is in it, and no
// error.
Result<PartReport> VerifyPart(const VerifyOptions& options, const Part& part, Progress& progress);

// The report of all parts together, from theirs. The folder, the source and all else that the
// options name must be there, too: their headers and configs are read. Bars and `strict` may be
// other ones than those of the parts. kUsage if the reports are not those of all parts of a
// verification with these options of this folder.
Result<VerifyReport> MergeVerification(const VerifyOptions& options,
                                       std::span<const std::filesystem::path> reports,
                                       Progress& progress);

}  // namespace prepack
