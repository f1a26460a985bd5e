#include "io/atomic_file.h"

#include <fmt/format.h>

#include "io/file.h"
#include "io/posix.h"

namespace prepack {

Status WriteFileAtomically(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path name = path.filename();
  if (name.empty()) return Usage(path.string(), "not the name of a file");
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::filesystem::path partial = folder / fmt::format(".{}.prepack-partial", name.string());
  int result = posix::RemoveTree(partial);
  if (result < 0) return SystemError(partial.string(), "cannot remove it", -result);
  Status status = WriteTextFile(partial, text);
  if (status.ok()) {
    result = posix::Rename(partial, path);
    if (result < 0) status = SystemError(path.string(), "cannot write it", -result);
  }
  if (!status.ok()) {
    (void)posix::RemoveTree(partial);
    return status;
  }
  return SyncFolder(folder);
}

}  // namespace prepack
