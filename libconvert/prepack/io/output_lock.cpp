#include "prepack/io/output_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "prepack/io/file.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace fs = std::filesystem;
namespace {

// Does `path` still name the file that is open as `fd`?
Result<bool> IsSameFile(int fd, const fs::path& path) {
  struct stat open {};
  if (const int result = posix::LookAtOpen(fd, open); result < 0) {
    return SystemError(path.string(), "cannot examine it", -result);
  }
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> named, LookAtLink(path));
  return named && open.st_dev == named->st_dev && open.st_ino == named->st_ino;
}

// Makes and locks the lock file; its descriptor. The holder removes the file when done, so a lock
// may turn out to be one on a file that is gone: then it protects nothing, and we try again.
Result<int> AcquireLock(const fs::path& lock_path, const fs::path& output) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW;
    int fd = posix::Open(lock_path, kFlags | O_EXCL, 0666);
    const bool is_new = fd >= 0;
    if (fd == -EEXIST) fd = posix::Open(lock_path, kFlags, 0666);
    if (fd < 0) return SystemError(lock_path.string(), "cannot create the lock file", -fd);
    const int result = posix::LockSoon(fd);
    const Result<bool> taken =
        result >= 0 ? IsSameFile(fd, lock_path)
                    : SystemError(lock_path.string(), "cannot lock the output", -result);
    if (taken.ok() && *taken) return fd;
    ::close(fd);
    if (taken.ok()) continue;
    if (result == -EWOULDBLOCK) break;
    if (is_new) posix::RemoveTree(lock_path);  // else it may be another's
    return taken.status();
  }
  return Usage(output.string(), "another prepack is writing this output")
      .Hint("Wait until it is done, or choose another name");
}

}  // namespace

fs::path HiddenSibling(const fs::path& path, std::string_view suffix) {
  return path.parent_path() / fmt::format(".{}.{}", path.filename().string(), suffix);
}

Result<OutputLock> OutputLock::Take(const fs::path& output) {
  const fs::path parent = output.parent_path();
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> info, LookAt(parent));
  if (!info) {
    return SystemError(parent.string(), "the parent folder of the output does not exist", ENOENT)
        .Hint(fmt::format("Create it first: mkdir -p '{}'", parent.string()));
  }
  if (!S_ISDIR(info->st_mode))
    return SystemError(parent.string(), "cannot create the output in it", ENOTDIR);
  fs::path path = HiddenSibling(output, "prepack-lock");
  PREPACK_TRY_ASSIGN(const int fd, AcquireLock(path, output));
  return OutputLock(std::move(path), fd);
}

OutputLock::OutputLock(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}

OutputLock::OutputLock(OutputLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OutputLock& OutputLock::operator=(OutputLock&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

OutputLock::~OutputLock() {
  Release();
}

void OutputLock::Release() noexcept {
  if (fd_ < 0) return;
  posix::RemoveTree(path_);
  ::close(std::exchange(fd_, -1));
}

}  // namespace prepack
