#include "io/look.h"

#include <cerrno>

#include "io/posix.h"

namespace prepack {
namespace {

Status CannotLook(const std::filesystem::path& path, int result) {
  return SystemError(path.string(), "cannot look at it", -result);
}

using Look = int (*)(const std::filesystem::path& path, struct stat& info);

Result<std::optional<struct stat>> LookBy(Look look, const std::filesystem::path& path) {
  struct stat info {};
  const int result = look(path, info);
  if (result >= 0) return std::optional(info);
  if (result == -ENOENT) return std::optional<struct stat>();
  return CannotLook(path, result);
}

}  // namespace

Result<std::optional<struct stat>> LookAt(const std::filesystem::path& path) {
  return LookBy(posix::Look, path);
}

Result<std::optional<struct stat>> LookAtLink(const std::filesystem::path& path) {
  return LookBy(posix::LookAtLink, path);
}

Result<std::filesystem::path> ResolveLinks(const std::filesystem::path& path) {
  std::filesystem::path resolved;
  const int result = posix::Resolve(path, resolved);
  if (result < 0) return CannotLook(path, result);
  return resolved;
}

}  // namespace prepack
