#include "io/atomic_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/cancellation.h"
#include "io/file.h"
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
  std::error_code error;
  const std::filesystem::file_status status_of_given = std::filesystem::status(given, error);
  const bool exists = std::filesystem::exists(status_of_given);
  if (exists && !std::filesystem::is_regular_file(status_of_given) &&
      !std::filesystem::is_directory(status_of_given)) {
    return WriteToSpecialFile(given, text);
  }
  const std::filesystem::path path = exists ? std::filesystem::canonical(given, error) : given;
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
