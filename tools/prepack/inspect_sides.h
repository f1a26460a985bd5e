#ifndef PREPACK_TOOLS_INSPECT_SIDES_H_
#define PREPACK_TOOLS_INSPECT_SIDES_H_

// What `prepack inspect` shows of one module in a folder and, when the folder is a packed one, in
// its source beside it.

#include <optional>
#include <string>
#include <utility>

#include "inspect/opened_folder.h"

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
  const Result<OpenedFolder> folder = OpenedFolder::Open(path);
  if (!folder.ok()) return folder.status();
  Result<Shown> side = show(*folder);
  if (!side.ok()) return side.status();
  Sides<Shown> sides;
  if (!folder->packed) {
    sides.source = *std::move(side);
    return sides;
  }
  sides.packed = *std::move(side);
  const Result<std::optional<OpenedFolder>> origin = OpenSource(*folder->packed, source);
  if (!origin.ok()) return origin.status();
  if (!*origin) return sides;
  const ModuleRecord& record = folder->packed->manifest().modules.at(sides.packed->module);
  Result<Shown> stored = show_source(**origin, *sides.packed, record);
  if (!stored.ok()) return stored.status();
  sides.source = *std::move(stored);
  return sides;
}

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_INSPECT_SIDES_H_
