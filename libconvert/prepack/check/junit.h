#ifndef PREPACK_CHECK_JUNIT_H_
#define PREPACK_CHECK_JUNIT_H_

// The report of a check as JUnit XML, which CI systems show: one test case for the checkpoint as a
// whole and one per quantized module. Errors are failures, and so are warnings when `strict`; a
// module whose data was not looked at is skipped, not passed.

#include <string>

#include "prepack/check/check.h"

namespace prepack {

std::string CheckJUnit(const CheckReport& report, bool strict);

}  // namespace prepack

#endif  // PREPACK_CHECK_JUNIT_H_
