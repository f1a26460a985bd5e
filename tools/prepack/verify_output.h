#pragma once

#include <string>

#include "command.h"
#include "part_options.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/report/summary.h"
#include "prepack/verify/verify.h"

namespace prepack::cli {

// A verify report for the terminal: the table of modules, a line per level with its problems and
// notes, and the verdict as the last line. Of models with very many modules the table shows those
// that matter.
std::string VerifyText(const VerifyReport& report);

}  // namespace prepack::cli

namespace prepack::cli {

// Where the report goes besides stdout, and what it is compared with. Empty: not asked for.
struct VerifyOutputs {
  std::string junit;
  std::string html;
  std::string markdown;
  std::string against;
  double tolerance_db = kDefaultToleranceDb;
  PartFlags parts = {};
};

// Gives the report as text or JSON, and in every file that was asked for, whatever the verdict; the
// exit code says passed (0), failed (1) or not all of it run (6).
ExitCodeValue PrintVerifyReport(const VerifyReport& report, const VerifyOutputs& outputs,
                                const CommonOptions& common);
// The same for convert --verify, whose own result stdout has already: with --json that is all.
ExitCodeValue PrintVerdictOfConversion(const VerifyReport& report, CommonOptions common);
// Runs verify with a progress line and prints its report. When verification itself fails, nothing
// is written.
ExitCodeValue VerifyAndPrint(const VerifyOptions& options, const VerifyOutputs& outputs,
                             const CommonOptions& common);
// Verifies one part, and writes its report; see FinishPart.
ExitCodeValue VerifyPartAndPrint(const VerifyOptions& options, const PartFlags& parts,
                                 const CommonOptions& common);

}  // namespace prepack::cli
