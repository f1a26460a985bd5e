#ifndef PREPACK_INSPECT_REPORT_HTML_H_
#define PREPACK_INSPECT_REPORT_HTML_H_

#include <string>

#include "prepack/inspect/inspect.h"

namespace prepack {

// The report as one self-contained page (report/page.h): what the folder is and where it comes
// from, schemes, what each target would take, size and bits per weight along the depth of the
// model, and every module and tensor. Of very many of these, those that differ in numbers only
// share a row.
std::string InspectHtml(const InspectReport& report);

}  // namespace prepack

#endif  // PREPACK_INSPECT_REPORT_HTML_H_
