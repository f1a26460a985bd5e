#ifndef PREPACK_TOOLS_INSPECT_NUMBERS_H_
#define PREPACK_TOOLS_INSPECT_NUMBERS_H_

// `prepack inspect --module`: what the numbers of a module look like.

#include <string>
#include <string_view>

#include "container/json.h"
#include "inspect/module_numbers.h"
#include "inspect_drawing.h"

namespace prepack::cli {

std::string NumbersText(const ModuleNumbers& numbers, const DrawingStyle& style);
Json NumbersJson(std::string_view module, const ModuleNumbers& numbers);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_INSPECT_NUMBERS_H_
