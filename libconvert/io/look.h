#ifndef PREPACK_IO_LOOK_H_
#define PREPACK_IO_LOOK_H_

#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "base/result.h"

namespace prepack {

// What a path names; nothing when there is nothing. That nobody can tell is an error: what is taken
// for missing may be overwritten.
Result<std::optional<struct stat>> LookAt(const std::filesystem::path& path);      // through links
Result<std::optional<struct stat>> LookAtLink(const std::filesystem::path& path);  // at links
// The absolute path, without links. That there is nothing is an error.
Result<std::filesystem::path> ResolveLinks(const std::filesystem::path& path);

}  // namespace prepack

#endif  // PREPACK_IO_LOOK_H_
