#ifndef PREPACK_CHECK_REPORT_H_
#define PREPACK_CHECK_REPORT_H_

// The report of a check as JUnit XML, which CI systems show: one test case for the checkpoint as a
// whole and one per quantized module. Errors are failures, and so are warnings if `strict`; a
// module whose data was not read is skipped, not passed.

#include <string>

#include "prepack/check/check.h"

namespace prepack {

std::string CheckJUnit(const CheckReport& report, bool strict);

// The report as one self-contained page (report/page.h): verdict, findings, histograms of codes and
// scales for each scheme, and every module by what was measured of it.
std::string CheckHtml(const CheckReport& report);

}  // namespace prepack

#endif  // PREPACK_CHECK_REPORT_H_
