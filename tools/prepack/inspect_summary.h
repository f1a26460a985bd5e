#ifndef PREPACK_TOOLS_INSPECT_SUMMARY_H_
#define PREPACK_TOOLS_INSPECT_SUMMARY_H_

// What `prepack inspect` shows of a folder as a whole.

#include <string>
#include <string_view>

#include "container/json.h"
#include "inspect/inspect.h"

namespace prepack::cli {

// What the folder is, its schemes, what is not quantized, and what each target would take.
std::string SummaryText(const InspectReport& report);
Json SummaryJson(const InspectReport& report);
// Of a packed folder; else null.
Json OriginJson(const InspectReport& report);

// A line per kind of module, or per module.
std::string FoldedModulesText(const InspectReport& report);
std::string AllModulesText(const InspectReport& report);

// "as stored" where there is none.
std::string LayoutText(std::string_view layout);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_INSPECT_SUMMARY_H_
