#ifndef PREPACK_TOOLS_FINDINGS_H_
#define PREPACK_TOOLS_FINDINGS_H_

#include <string>
#include <vector>

#include "formats/format.h"

namespace prepack::cli {

// One "note: WHERE: MESSAGE" line per finding; empty when there are none.
std::string FindingsText(const std::vector<Finding>& findings);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_FINDINGS_H_
