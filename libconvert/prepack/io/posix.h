#pragma once

// The system calls that change, read or look at files, one function each. Everything in io/ goes
// through here, so that tests can make any of them fail (SetFaultHook) and prove what is left
// behind.
//
// All return a value >= 0, or -errno. EINTR is retried.

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace prepack::posix {

enum class Call {
  kOpen,
  kRead,
  kMap,
  kWrite,
  kReserve,
  kResize,
  kSync,
  kWriteback,
  kClose,
  kLock,
  kMakeFolder,
  kRename,
  kExchange,
  kLink,
  kRemove,
  kLook,
  kList
};

// Asked before every call, from any thread: 0 lets it through, another value makes it fail with
// that errno; EINTR is retried, so the hook is asked again. kShort: of what is to be read or
// written, half is. For tests; null (the default) switches it off.
using FaultHook = int (*)(Call call);
inline constexpr int kShort = -1;
void SetFaultHook(FaultHook hook) noexcept;

// A call that was made and has changed something, or may be needed to know what another one
// changed: what a disk would have to do.
struct Change {
  Call call = Call::kOpen;
  int fd = -1;                                  // that was opened, written, resized or flushed
  const std::filesystem::path* path = nullptr;  // that was opened, made, renamed, linked or removed
  const std::filesystem::path* to =
      nullptr;             // of a renaming, an exchange or a link: the other name
  bool truncates = false;  // kOpen: an existing file
  uint64_t offset = 0;     // of what was written; of kReserve and kResize: the size
  std::span<const std::byte> bytes = {};
};
// Told of every change after it was made, from any thread. For tests that replay them up to any
// point; null (the default) switches it off.
using ChangeHook = void (*)(const Change& change);
void SetChangeHook(ChangeHook hook) noexcept;

// A file descriptor.
int Open(const std::filesystem::path& path, int flags, mode_t mode = 0);
// Bytes read or written, perhaps fewer than asked for; 0 from ReadSome is the end of the file.
ssize_t ReadSome(int fd, uint64_t offset, std::span<std::byte> out);
ssize_t WriteSome(int fd, uint64_t offset, std::span<const std::byte> bytes);
// Maps [offset, offset + bytes) for reading; 0, and the address in `begin`, or -errno.
int MapForRead(int fd, uint64_t offset, uint64_t bytes, void*& begin);
// Reserves blocks for [0, bytes) and makes the file that long.
int Reserve(int fd, uint64_t bytes);
int Resize(int fd, uint64_t bytes);
// Contents and size, to the disk.
int SyncData(int fd);
// Asks the kernel to start writing what is in memory of the file; returns at once.
int StartWriteback(int fd);
// Closes a second descriptor of the file. Network file systems write when one is closed, and say
// only then that the disk is full.
int CloseCopy(int fd);
// Everything; for folders.
int SyncAll(int fd);
// An exclusive flock; -EWOULDBLOCK when another process, or another open file of this one, has it
// for a second. One that was just killed may have it a moment longer, in a child that has not yet
// become its program.
int LockSoon(int fd);
// With the permissions that the umask leaves of 0777.
int MakeFolder(const std::filesystem::path& path);
// Fails with -EEXIST when `to` exists. -EINVAL or -ENOSYS: this file system cannot promise that.
int RenameNew(const std::filesystem::path& from, const std::filesystem::path& to);
int Rename(const std::filesystem::path& from, const std::filesystem::path& to);
// Swaps the two names in one step. -EINVAL or -ENOSYS: this file system cannot.
int Exchange(const std::filesystem::path& a, const std::filesystem::path& b);
// A second name for a file (a hard link).
int Link(const std::filesystem::path& from, const std::filesystem::path& to);
// A file, or a folder with everything in it; links are removed, never followed. Nothing there is
// a success.
int RemoveTree(const std::filesystem::path& path);
// What a path names: where a link leads, or the link itself.
int Look(const std::filesystem::path& path, struct stat& info);
int LookAtLink(const std::filesystem::path& path, struct stat& info);
int LookAtOpen(int fd, struct stat& info);
// The absolute path, without links.
int Resolve(const std::filesystem::path& path, std::filesystem::path& resolved);
// The names of all that is in a folder, in no order.
int List(const std::filesystem::path& folder, std::vector<std::string>& names);

}  // namespace prepack::posix
