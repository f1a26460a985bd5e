#ifndef PREPACK_TOOLS_VERIFY_OUTPUT_H_
#define PREPACK_TOOLS_VERIFY_OUTPUT_H_

#include "command.h"
#include "verify/verify.h"

namespace prepack::cli {

// Runs verify with a progress line and gives the report as text or JSON; the exit code says passed
// (0), failed (1) or not all of it run (6).
ExitCodeValue VerifyAndPrint(const VerifyOptions& options, const CommonOptions& common);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_VERIFY_OUTPUT_H_
