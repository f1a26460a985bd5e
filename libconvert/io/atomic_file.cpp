#include "io/atomic_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>

#include "base/cancellation.h"
#include "io/file.h"
#include "io/look.h"
#include "io/posix.h"

namespace prepack {

namespace {

Status WriteToSpecialFile(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
  if (file) return {};
  return SystemError(path.string(), "cannot write to it", EIO);
}

}  // namespace

Status WriteFileAtomically(const std::filesystem::path& given, std::string_view text) {
  if (!given.has_filename()) return Usage(given.string(), "not the name of a file");
  const Result<std::optional<struct stat>> there = LookAt(given);
  if (!there.ok()) return there.status();
  std::filesystem::path path = given;
  if (*there) {
    const mode_t mode = (*there)->st_mode;
    if (!S_ISREG(mode) && !S_ISDIR(mode)) return WriteToSpecialFile(given, text);
    Result<std::filesystem::path> resolved = ResolveLinks(given);
    if (!resolved.ok()) return resolved.status();
    path = *std::move(resolved);
  }
  const std::filesystem::path name = path.filename();
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const OrderlyEnd orderly_end;
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
