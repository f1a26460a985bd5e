#ifndef PREPACK_DIFF_REPORT_HTML_H_
#define PREPACK_DIFF_REPORT_HTML_H_

#include <string>

#include "diff/diff.h"

namespace prepack {

// The report as one self-contained page (html/page.h): verdicts, the SQNR of every module of B
// against A, and all modules and tensors.
std::string DiffHtml(const DiffReport& report);

}  // namespace prepack

#endif  // PREPACK_DIFF_REPORT_HTML_H_
