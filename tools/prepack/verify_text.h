#ifndef PREPACK_TOOLS_VERIFY_TEXT_H_
#define PREPACK_TOOLS_VERIFY_TEXT_H_

#include <string>

#include "verify/report.h"

namespace prepack::cli {

// A verify report for the terminal: the table of modules, a line per level with its problems and
// notes, and the verdict as the last line. Of models with very many modules the table shows those
// that matter.
std::string VerifyText(const VerifyReport& report);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_VERIFY_TEXT_H_
