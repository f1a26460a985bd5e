#include "container/source_links.h"

#include "io/look.h"
#include "io/paths.h"

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
  const Result<fs::path> target = ResolveLinks(link);
  if (!target.ok()) return target.status();
  if (IsInside(*target, allowed.folder)) return {};
  if (!allowed.blobs.empty() && IsInside(*target, allowed.blobs)) return {};
  return Malformed(link.string(), "a symbolic link that leads out of the checkpoint")
      .Found(target->string())
      .Expected("a file in the folder, or in the blobs of a hub cache")
      .Hint("If you trust it, put the file itself in the folder (cp -L)");
}

}  // namespace

Status CheckSourceLinks(const fs::path& source, std::span<const fs::path> links) {
  if (links.empty()) return {};
  const Result<fs::path> folder = ResolveLinks(source);
  if (!folder.ok()) return folder.status();
  const AllowedPlaces allowed = PlacesOf(*folder);
  for (const fs::path& link : links) {
    if (Status status = CheckLink(link, allowed); !status.ok()) return status;
  }
  return {};
}

}  // namespace prepack
