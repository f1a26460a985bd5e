#include "prepack/io/posix.h"

#include <fcntl.h>
#include <linux/fs.h>  // RENAME_NOREPLACE
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

namespace prepack::posix {
namespace {

std::atomic<FaultHook> fault_hook = nullptr;
std::atomic<ChangeHook> change_hook = nullptr;

// Tells of a call that has succeeded; gives its result.
template <typename T>
T Tell(T result, const Change& change) {
  const ChangeHook hook = change_hook.load(std::memory_order_relaxed);
  if (hook != nullptr && result >= 0) hook(change);
  return result;
}

int FaultOf(Call call) {
  const FaultHook hook = fault_hook.load(std::memory_order_relaxed);
  return hook == nullptr ? 0 : hook(call);
}

// renameat2, which glibc has since 2.28 only and musl since 1.2.6.
int RenameAs(const std::filesystem::path& from, const std::filesystem::path& to, unsigned flags) {
  return static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags));
}

// Runs a system call that returns -1 and errno, until it is not interrupted by a signal. `function`
// is told whether to do half of its work.
template <typename Function>
auto RunOrHalf(Call call, Function function) -> decltype(function(false)) {
  for (;;) {
    const int fault = FaultOf(call);
    if (fault == EINTR) continue;
    if (fault > 0) return -fault;
    const auto result = function(fault == kShort);
    if (result != -1) return result;
    if (errno != EINTR) return -errno;
  }
}

template <typename Function>
auto Run(Call call, Function function) -> decltype(function()) {
  return RunOrHalf(call, [&](bool /*half*/) { return function(); });
}

size_t HalfOf(size_t bytes) {
  return bytes - bytes / 2;
}

}  // namespace

void SetFaultHook(FaultHook hook) noexcept {
  fault_hook.store(hook, std::memory_order_relaxed);
}

void SetChangeHook(ChangeHook hook) noexcept {
  change_hook.store(hook, std::memory_order_relaxed);
}

int Open(const std::filesystem::path& path, int flags, mode_t mode) {
  const int fd = Run(Call::kOpen, [&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); });
  return Tell(fd,
              {.call = Call::kOpen, .fd = fd, .path = &path, .truncates = (flags & O_TRUNC) != 0});
}

ssize_t ReadSome(int fd, uint64_t offset, std::span<std::byte> out) {
  return RunOrHalf(Call::kRead, [&](bool half) {
    const size_t bytes = half ? HalfOf(out.size()) : out.size();
    return ::pread(fd, out.data(), bytes, static_cast<off_t>(offset));
  });
}

ssize_t WriteSome(int fd, uint64_t offset, std::span<const std::byte> bytes) {
  const ssize_t written = RunOrHalf(Call::kWrite, [&](bool half) {
    const size_t count = half ? HalfOf(bytes.size()) : bytes.size();
    return ::pwrite(fd, bytes.data(), count, static_cast<off_t>(offset));
  });
  const size_t done = written > 0 ? static_cast<size_t>(written) : 0;
  return Tell(written,
              {.call = Call::kWrite, .fd = fd, .offset = offset, .bytes = bytes.first(done)});
}

int MapForRead(int fd, uint64_t offset, uint64_t bytes, void*& begin) {
  return Run(Call::kMap, [&] {
    begin = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
    return begin == MAP_FAILED ? -1 : 0;
  });
}

int Reserve(int fd, uint64_t bytes) {
  // Not posix_fallocate: where the file system cannot reserve, glibc emulates it by writing to
  // every block, which takes as long as the conversion itself.
  return Tell(Run(Call::kReserve, [&] { return ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)); }),
              {.call = Call::kReserve, .fd = fd, .offset = bytes});
}

int Resize(int fd, uint64_t bytes) {
  return Tell(Run(Call::kResize, [&] { return ::ftruncate(fd, static_cast<off_t>(bytes)); }),
              {.call = Call::kResize, .fd = fd, .offset = bytes});
}

int SyncData(int fd) {
  return Tell(Run(Call::kSync, [&] { return ::fdatasync(fd); }), {.call = Call::kSync, .fd = fd});
}

int StartWriteback(int fd) {
  return Run(Call::kWriteback, [&] { return ::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); });
}

int CloseCopy(int fd) {
  // A close that was interrupted must not be repeated: the descriptor may be gone.
  const int copy = Run(Call::kClose, [&] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); });
  if (copy < 0) return copy;
  return ::close(copy) == 0 || errno == EINTR ? 0 : -errno;
}

int SyncAll(int fd) {
  return Tell(Run(Call::kSync, [&] { return ::fsync(fd); }), {.call = Call::kSync, .fd = fd});
}

int LockSoon(int fd) {
  constexpr int kLooks = 50;
  constexpr auto kLookEvery = std::chrono::milliseconds(20);
  int result = -EWOULDBLOCK;
  for (int look = 0; look < kLooks && result == -EWOULDBLOCK; ++look) {
    if (look > 0) std::this_thread::sleep_for(kLookEvery);
    result = Run(Call::kLock, [&] { return ::flock(fd, LOCK_EX | LOCK_NB); });
  }
  return result;
}

int MakeFolder(const std::filesystem::path& path) {
  return Tell(Run(Call::kMakeFolder, [&] { return ::mkdir(path.c_str(), 0777); }),
              {.call = Call::kMakeFolder, .path = &path});
}

int RenameNew(const std::filesystem::path& from, const std::filesystem::path& to) {
  const int result = Run(Call::kRename, [&] { return RenameAs(from, to, RENAME_NOREPLACE); });
  return Tell(result, {.call = Call::kRename, .path = &from, .to = &to});
}

int Rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  return Tell(Run(Call::kRename, [&] { return ::rename(from.c_str(), to.c_str()); }),
              {.call = Call::kRename, .path = &from, .to = &to});
}

int Exchange(const std::filesystem::path& a, const std::filesystem::path& b) {
  const int result = Run(Call::kExchange, [&] { return RenameAs(a, b, RENAME_EXCHANGE); });
  return Tell(result, {.call = Call::kExchange, .path = &a, .to = &b});
}

int Link(const std::filesystem::path& from, const std::filesystem::path& to) {
  return Tell(Run(Call::kLink, [&] { return ::link(from.c_str(), to.c_str()); }),
              {.call = Call::kLink, .path = &from, .to = &to});
}

int RemoveTree(const std::filesystem::path& path) {
  const int result = Run(Call::kRemove, [&] {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    errno = error.value();
    return error ? -1 : 0;
  });
  return Tell(result, {.call = Call::kRemove, .path = &path});
}

int Look(const std::filesystem::path& path, struct stat& info) {
  return Run(Call::kLook, [&] { return ::stat(path.c_str(), &info); });
}

int LookAtLink(const std::filesystem::path& path, struct stat& info) {
  return Run(Call::kLook, [&] { return ::lstat(path.c_str(), &info); });
}

int LookAtOpen(int fd, struct stat& info) {
  return Run(Call::kLook, [&] { return ::fstat(fd, &info); });
}

int Resolve(const std::filesystem::path& path, std::filesystem::path& resolved) {
  return Run(Call::kLook, [&] {
    std::error_code error;
    resolved = std::filesystem::canonical(path, error);
    errno = error.value();
    return error ? -1 : 0;
  });
}

int List(const std::filesystem::path& folder, std::vector<std::string>& names) {
  return Run(Call::kList, [&] {
    names.clear();
    std::error_code error;
    std::filesystem::directory_iterator entry(folder, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    errno = error.value();
    return error ? -1 : 0;
  });
}

}  // namespace prepack::posix
