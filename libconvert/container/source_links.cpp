#include "container/source_links.h"

#include "io/paths.h"
#include "io/posix.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

struct AllowedPlaces {
  fs::path folder;
  fs::path blobs;  // empty: the folder is no snapshot of a hub cache
};

AllowedPlaces PlacesOf(fs::path folder) {
  const fs::path snapshots = folder.parent_path();
  const bool is_snapshot = snapshots.filename() == "snapshots";
  return {std::move(folder), is_snapshot ? snapshots.parent_path() / "blobs" : fs::path()};
}

Status CheckLink(const fs::path& link, const AllowedPlaces& allowed) {
  fs::path target;
  if (const int result = posix::Resolve(link, target); result < 0) {
    return SystemError(link.string(), "cannot look at it", -result);
  }
  if (IsInside(target, allowed.folder)) return {};
  if (!allowed.blobs.empty() && IsInside(target, allowed.blobs)) return {};
  return Malformed(link.string(), "a symbolic link that leads out of the checkpoint")
      .Found(target.string())
      .Expected("a file in the folder, or in the blobs of a hub cache")
      .Hint("If you trust it, put the file itself in the folder (cp -L)");
}

}  // namespace

Status CheckSourceLinks(const fs::path& source, std::span<const fs::path> links) {
  if (links.empty()) return {};
  fs::path folder;
  if (const int result = posix::Resolve(source, folder); result < 0) {
    return SystemError(source.string(), "cannot look at it", -result);
  }
  const AllowedPlaces allowed = PlacesOf(folder);
  for (const fs::path& link : links) {
    if (Status status = CheckLink(link, allowed); !status.ok()) return status;
  }
  return {};
}

}  // namespace prepack
