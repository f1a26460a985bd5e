#include "container/source_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "io/escape.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

// Both without links.
bool IsInside(const fs::path& file, const fs::path& folder) {
  return std::ranges::mismatch(folder, file).in1 == folder.end();
}

}  // namespace

Status CheckSourceLink(const fs::path& source, const fs::path& file) {
  std::error_code error;
  const fs::path folder = fs::canonical(source, error);
  if (error) return SystemError(source.string(), "cannot look at it", error.value());
  const fs::path target = fs::canonical(file, error);
  if (error) return SystemError(file.string(), "cannot look at it", error.value());
  if (IsInside(target, folder)) return {};
  const fs::path snapshots = folder.parent_path();
  const bool is_snapshot = snapshots.filename() == "snapshots";
  if (is_snapshot && IsInside(target, snapshots.parent_path() / "blobs")) return {};
  return Malformed(file.string(), "a symbolic link that leads out of the checkpoint")
      .Found(Printable(target.string()))
      .Expected("a file in the folder, or in the blobs of a hub cache")
      .Hint("If you trust it, put the file itself in the folder (cp -L)");
}

}  // namespace prepack
