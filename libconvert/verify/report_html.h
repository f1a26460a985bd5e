#ifndef PREPACK_VERIFY_REPORT_HTML_H_
#define PREPACK_VERIFY_REPORT_HTML_H_

// A verify report as one self-contained page: no script, nothing loaded from anywhere, light or
// dark as the reader's system is.

#include <string>

#include "verify/report.h"

namespace prepack {

std::string VerifyHtml(const VerifyReport& report);

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_HTML_H_
