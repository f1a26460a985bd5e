#ifndef PREPACK_TOOLS_INSPECT_WEIGHTS_H_
#define PREPACK_TOOLS_INSPECT_WEIGHTS_H_

// `prepack inspect --values`: some weights of a module as a table of numbers.

#include <string>

#include "container/json.h"
#include "inspect/weight_values.h"

namespace prepack::cli {

// `rows` and `cols` are FIRST:END, where either may be missing.
Result<WeightValues> ValuesOf(const std::string& path, const std::string& module,
                              const std::string& rows, const std::string& cols, ValueKind kind);

std::string ValuesText(const WeightValues& values);
Json ValuesJson(const std::string& path, const WeightValues& values);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_INSPECT_WEIGHTS_H_
