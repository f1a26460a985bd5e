#include "convert/output_place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "convert/manifest.h"
#include "io/paths.h"

namespace prepack {
namespace {

std::filesystem::path Resolve(const std::filesystem::path& path) {
  // Of a relative path that does not exist yet, weakly_canonical makes no absolute one.
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  std::filesystem::path resolved = std::filesystem::weakly_canonical(absolute, error);
  if (error) resolved = absolute;
  // "folder/" ends in an empty component, which would not match.
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

}  // namespace

Status CheckOutputPlace(const std::filesystem::path& source, const std::filesystem::path& output) {
  const std::filesystem::path from = Resolve(source);
  const std::filesystem::path to = Resolve(output);
  if (!IsInside(to, from) && !IsInside(from, to)) return {};
  return Usage(output.string(), "the output may not be the source, lie inside it or contain it")
      .Found(fmt::format("source {}", from.string()))
      .Hint("Choose a folder beside the source");
}

std::string PathToSource(const std::filesystem::path& source, const std::filesystem::path& output) {
  std::string path = Resolve(source).lexically_relative(Resolve(output)).string();
  return IsSourcePath(path) ? path : std::string();
}

Status CheckFreeSpace(const std::filesystem::path& folder, uint64_t bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= bytes) return {};  // unknown: the reservation will tell
  return SystemError(folder.parent_path().string(), "not enough space for the packed weights",
                     ENOSPC)
      .Found(fmt::format("{} bytes free", space.available))
      .Expected(fmt::format("{} bytes", bytes));
}

uint64_t BytesOnDisk(const std::filesystem::path& folder, const std::vector<std::string>& names) {
  constexpr uint64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's are
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    struct stat info {};
    if (lstat((folder / name).c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const uint64_t blocks = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
    bytes += std::min(blocks, static_cast<uint64_t>(info.st_size));
  }
  return bytes;
}

}  // namespace prepack
