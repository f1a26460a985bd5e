#pragma once

// What `prepack inspect` shows of one module in a folder and, when the folder is a packed one, in
// its source beside it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/inspect/module_arrays.h"
#include "prepack/inspect/opened_folder.h"
#include "prepack/inspect/places.h"
#include "prepack/inspect/weight_values.h"

namespace prepack::cli {

// `Shown` names the module of the folder that it is of: `module`.
template <typename Shown>
struct Sides {
  std::optional<Shown> source = {};
  std::optional<Shown> packed = {};
};

// `show(folder)` shows the folder at `path`. When that is packed, and its source is there (at
// `source`, or where the manifest says), `show_source(source, packed, record)` shows that, given
// what was shown and the module's record.
template <typename Shown, typename Show, typename ShowSource>
Result<Sides<Shown>> ShowSides(const std::string& path, const std::string& source, const Show& show,
                               const ShowSource& show_source) {
  PREPACK_TRY_ASSIGN(const OpenedFolder folder, OpenedFolder::Open(path));
  PREPACK_TRY_ASSIGN(Shown side, show(folder));
  Sides<Shown> sides;
  if (!folder.packed) {
    sides.source = std::move(side);
    return sides;
  }
  sides.packed = std::move(side);
  PREPACK_TRY_ASSIGN(const std::optional<OpenedFolder> origin, OpenSource(*folder.packed, source));
  if (!origin) return sides;
  const ModuleRecord& record = folder.packed->manifest().modules.at(sides.packed->module);
  PREPACK_TRY_ASSIGN(Shown stored, show_source(*origin, *sides.packed, record));
  sides.source = std::move(stored);
  return sides;
}

}  // namespace prepack::cli

namespace prepack::cli {

// `prepack inspect --layout`: which weight each of the first nibbles or bytes of a module is, in
// the source and packed.

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

namespace prepack::cli {

// `prepack inspect --values`: some weights of a module as a table of numbers.

// `rows` and `cols` are FIRST:END, where either may be missing.
Result<WeightValues> ValuesOf(const std::string& path, const std::string& module,
                              const std::string& rows, const std::string& cols, ValueKind kind);

std::string ValuesText(const WeightValues& values);
Json ValuesJson(const std::string& path, const WeightValues& values);

// `prepack inspect --arrays`: where all of its numbers are now.
std::string ArraysText(const ModuleArrays& arrays);
Json ArraysJson(const std::string& path, const ModuleArrays& arrays);

}  // namespace prepack::cli

namespace prepack::cli {

// `prepack inspect --find` and `--at`: which bytes hold a weight, and what a byte holds.

// What --find has found: the weight in the source, in the packed folder, or in both.
struct FoundSides {
  std::string module;  // as asked for
  uint64_t n = 0;
  uint64_t k = 0;
  Sides<FoundWeight> sides = {};
};

// Looks in the folder and, when it is a packed one, in its source: `source`, or the one that the
// manifest names, where that is there. `wanted` is MODULE N K.
Result<FoundSides> FindSides(const std::string& path, const std::string& source,
                             const std::vector<std::string>& wanted);
// `wanted` is FILE:OFFSET, the offset decimal or in hex with 0x.
Result<ByteContents> ContentsAt(const std::string& path, const std::string& wanted);

std::string FoundText(const FoundSides& found);
Json FoundJson(const std::string& path, const FoundSides& found);
std::string ContentsText(const ByteContents& contents);
Json ContentsJson(const std::string& path, const ByteContents& contents);

}  // namespace prepack::cli
