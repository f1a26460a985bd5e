#include "prepack/io/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace prepack {

Result<ScratchFolder> ScratchFolder::Create() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  if (error) return SystemError("TMPDIR", "there is no folder for temporary files", error.value());
  std::string name = (parent / "prepack-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    return SystemError(parent.string(), "cannot make a temporary folder", errno);
  }
  return ScratchFolder(name);
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})) {}

ScratchFolder::~ScratchFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace prepack
