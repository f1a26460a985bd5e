#include "io/look.h"

#include <cerrno>

#include "io/posix.h"

namespace prepack {
namespace {

using Look = int (*)(const std::filesystem::path& path, struct stat& info);

Result<std::optional<struct stat>> LookBy(Look look, const std::filesystem::path& path) {
  struct stat info {};
  const int result = look(path, info);
  if (result >= 0) return std::optional(info);
  if (result == -ENOENT) return std::optional<struct stat>();
  return SystemError(path.string(), "cannot look at it", -result);
}

}  // namespace

Result<std::optional<struct stat>> LookAt(const std::filesystem::path& path) {
  return LookBy(posix::Look, path);
}

Result<std::optional<struct stat>> LookAtLink(const std::filesystem::path& path) {
  return LookBy(posix::LookAtLink, path);
}

}  // namespace prepack
