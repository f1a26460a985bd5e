#ifndef PREPACK_TOOLS_INSPECT_DRAWING_H_
#define PREPACK_TOOLS_INSPECT_DRAWING_H_

// `prepack inspect --layout`: which weight each of the first nibbles or bytes of a module is, in
// the source and packed.

#include <cstddef>
#include <string>

#include "container/json.h"
#include "inspect/drawn_module.h"
#include "inspect_sides.h"

namespace prepack::cli {

struct DrawnSides {
  std::string module;  // as asked for
  Sides<DrawnModule> sides = {};
};

// Draws the folder and, when it is a packed one, its source: `source`, or the one that the manifest
// names, where that is there.
Result<DrawnSides> DrawSides(const std::string& path, const std::string& source,
                             const std::string& module);

struct DrawingStyle {
  bool colour = false;   // cells by output channel
  bool unicode = false;  // bars may be drawn with blocks
  size_t width = 80;     // of the terminal: what fits stands side by side
};

// As stdout and the environment say; not only a terminal may have COLUMNS.
DrawingStyle StyleOfTerminal();

std::string DrawingText(const DrawnSides& drawn, const DrawingStyle& style);
Json DrawingJson(const std::string& path, const DrawnSides& drawn);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_INSPECT_DRAWING_H_
