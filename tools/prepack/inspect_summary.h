#pragma once

// `prepack inspect --module`: what the numbers of a module look like.

#include <string>
#include <string_view>

#include "inspect_places.h"
#include "prepack/container/json.h"
#include "prepack/inspect/inspect.h"
#include "prepack/inspect/summary.h"

namespace prepack::cli {

std::string NumbersText(const ModuleNumbers& numbers, const DrawingStyle& style);
Json NumbersJson(std::string_view module, const ModuleNumbers& numbers);

}  // namespace prepack::cli

namespace prepack::cli {

// What `prepack inspect` shows of a folder as a whole.

// What the folder is, its schemes, what is not quantized, and what each target would take.
std::string SummaryText(const InspectReport& report);
Json SummaryJson(const InspectReport& report);
// Null unless the folder is a packed one.
Json OriginJson(const InspectReport& report);

// A line per kind of module, or per module.
std::string FoldedModulesText(const InspectReport& report);
std::string AllModulesText(const InspectReport& report);

// "as stored" where there is none.
std::string LayoutText(std::string_view layout);

}  // namespace prepack::cli
