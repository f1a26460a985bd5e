#pragma once

// Keeps two processes from writing the same output at the same time: a flock on a hidden sibling of
// it, `.NAME.prepack-lock`, which is removed at the end.

#include <filesystem>
#include <string_view>

#include "prepack/base/status.h"

namespace prepack {

// ".NAME.SUFFIX" beside a file or folder.
std::filesystem::path HiddenSibling(const std::filesystem::path& path, std::string_view suffix);

class OutputLock {
 public:
  // `output` is absolute and has a name. kUsage: another process is writing it. kSystem: its parent
  // is missing or cannot be written to.
  static Result<OutputLock> Take(const std::filesystem::path& output);

  OutputLock() = default;
  OutputLock(OutputLock&& other) noexcept;
  OutputLock& operator=(OutputLock&& other) noexcept;
  ~OutputLock();

  bool held() const { return fd_ >= 0; }
  void Release() noexcept;

 private:
  OutputLock(std::filesystem::path path, int fd);

  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace prepack
