#pragma once

#include <filesystem>
#include <utility>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"

namespace prepack {

// A folder with a name of its own, in the system's folder for temporary files (TMPDIR).
class ScratchFolder {
 public:
  static Result<ScratchFolder> Create();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}

  OrderlyEnd orderly_end_;  // a request to stop waits until the folder is removed
  std::filesystem::path path_;
};

}  // namespace prepack
