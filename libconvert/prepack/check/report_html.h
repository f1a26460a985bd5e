#ifndef PREPACK_CHECK_REPORT_HTML_H_
#define PREPACK_CHECK_REPORT_HTML_H_

#include <string>

#include "prepack/check/check.h"

namespace prepack {

// The report as one self-contained page (report/page.h): verdict, findings, histograms of codes and
// scales for each scheme, and every module by what was measured of it.
std::string CheckHtml(const CheckReport& report);

}  // namespace prepack

#endif  // PREPACK_CHECK_REPORT_HTML_H_
