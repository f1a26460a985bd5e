#ifndef PREPACK_TOOLS_FINDINGS_H_
#define PREPACK_TOOLS_FINDINGS_H_

#include <map>
#include <string>
#include <vector>

#include "formats/format.h"

namespace prepack::cli {

// One "note: WHERE: MESSAGE" line per finding; empty when there are none.
std::string FindingsText(const std::vector<Finding>& findings);

// What was not fused on request, by reason: "not fused: WHY (MODULE and 31 more)".
std::string ApartText(const std::map<std::string, std::string>& apart);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_FINDINGS_H_
