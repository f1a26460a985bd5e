#ifndef PREPACK_TOOLS_UNITS_H_
#define PREPACK_TOOLS_UNITS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/human_units.h"  // IWYU pragma: export

namespace prepack::cli {

// "12 s", "3 min 20 s", "2 h 5 min".
std::string HumanSeconds(double seconds);
// "[384, 1536]".
std::string ShapeText(std::span<const uint64_t> shape);

// A whole number as users write it, decimal or in hex with 0x; nothing else with it.
std::optional<uint64_t> ParseCount(std::string_view text);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_UNITS_H_
