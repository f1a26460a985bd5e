#ifndef PREPACK_VERIFY_REPORT_JUNIT_H_
#define PREPACK_VERIFY_REPORT_JUNIT_H_

// A verify report as JUnit XML: a suite per level with a test case per module,
// `prepack.verify.LEVEL` / MODULE, and one named "folder" for what is not of one module. What did
// not run is skipped, with the reason, never passed; a level that failed has at least one case that
// failed.

#include <string>

#include "verify/report.h"

namespace prepack {

std::string VerifyJUnit(const VerifyReport& report);

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_JUNIT_H_
