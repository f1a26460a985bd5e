#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/status.h"
#include "prepack/io/mapping.h"
#include "prepack/io/noted_ranges.h"

namespace prepack {

// Is `inner` the folder `outer`, or somewhere below it? Both absolute, and without links, `..` and
// a slash at the end.
inline bool IsInside(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

// Bytes of a file, mapped at one address as long as this is there: for what keeps pointers to them
// from one visit to the next. They are to be touched in visits only.
class PinnedBytes {
 public:
  // As File::VisitAt does. Safe from any thread.
  Status Visit(FunctionRef<void(std::span<const std::byte> bytes)> work,
               VisitThreads threads = VisitThreads::kThisOne) const;

 private:
  friend class File;
  PinnedBytes() = default;

  std::filesystem::path path_;
  std::shared_ptr<const Mapping> mapping_;  // null: no bytes
  uint64_t offset_ = 0;
  uint64_t bytes_ = 0;
};

// Files, with the loops that POSIX asks for (short reads and writes, EINTR). Positioned reads and
// writes only, so that threads can share one file. Reading goes through pread; only many short runs
// are copied out of a mapping (mapping.h). A file that shrinks while it is read is an error either
// way, never a SIGBUS.

// An open regular file. Closes itself.
class File {
 public:
  // Opens an existing regular file for reading; a folder, FIFO or device is kMalformed (and is
  // never waited for).
  static Result<File> OpenForRead(const std::filesystem::path& path);
  // The same for a file of weights, of which perhaps only the beginning is here: if there is no
  // such file, `path` with kHeadersSuffix is opened in its place (see below). It has the size
  // of the whole file; reading beyond what is there is kUnsupported, "headers only".
  static Result<File> OpenWeights(const std::filesystem::path& path);
  // Creates a new file for writing (and reading back), with the permissions that the umask leaves
  // of 0666; an existing file is an error.
  static Result<File> CreateNew(const std::filesystem::path& path);
  // Opens an existing regular file for writing and reading back.
  static Result<File> OpenForUpdate(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::filesystem::path& path() const { return path_; }
  // Size when the file was opened, or as set by Allocate.
  uint64_t size() const { return size_; }
  // Are only headers here, and perhaps some ranges?
  bool headers_only() const { return ranges_ != nullptr; }
  // Those of them that are; of a whole file none.
  ByteRanges ranges() const;
  // How many bytes from the start are here.
  uint64_t present() const { return headers_only() ? ranges_->front().bytes : size_; }

  // Fills `out` from `offset`; anything short of that is an error which says how many bytes are
  // missing.
  Status ReadAt(uint64_t offset, std::span<std::byte> out) const;
  // Fills `out` with the runs, back to back; the same for them. `out` has runs · run_bytes bytes.
  Status ReadRunsAt(const ByteRuns& runs, std::span<std::byte> out) const;
  // Calls `work` with the bytes [offset, offset + bytes) of the file, mapped into memory; they are
  // there during the call only, and the next call may see them at another address. The same errors:
  // then nothing that came out of it is to be used.
  Status VisitAt(uint64_t offset, uint64_t bytes, ByteVisitor work,
                 VisitThreads threads = VisitThreads::kThisOne) const;
  // The same for runs that are columns of a matrix, from the first to the end of the last one. What
  // lies between them is mapped, too, and stays so for other columns.
  Status VisitRunsAt(const ByteRuns& runs, ByteVisitor work) const;
  // What several visits will look at, piece by piece: one window takes all of it. Only a hint;
  // nothing is mapped at once of what is larger than kMostTogether.
  static constexpr uint64_t kMostTogether = uint64_t{128} << 20;
  void MapTogether(uint64_t offset, uint64_t bytes) const;
  // The same bytes for visits that see them at one address.
  Result<PinnedBytes> Pin(uint64_t offset, uint64_t bytes) const;
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  // Reserves the space at once, so that a full disk is noticed before any work is done. Where the
  // file system cannot reserve, the file is only extended.
  Status Allocate(uint64_t bytes);
  // Makes the file `bytes` long: cuts it, or adds zeros.
  Status Resize(uint64_t bytes);
  // Asks the kernel to begin flushing what was written so far, and goes on at once, so that Sync
  // has little left to wait for. Nothing is promised: what fails, fails in Sync.
  void StartWriteback();
  // Flushes to the disk (fdatasync).
  Status Sync();
  // Did all that was written arrive at the file system? For files that are not flushed: local file
  // systems know at once, network ones when a file is closed.
  Status CheckArrived();

 private:
  File(int fd, std::filesystem::path path, uint64_t size);
  static Result<File> Open(const std::filesystem::path& path, int access);
  struct Mapped {
    std::shared_ptr<const Mapping> mapping;  // null: no bytes
    uint64_t place = 0;  // of the bytes in what is mapped: a file of headers has them elsewhere
  };
  // `ahead`: see MappedWindows::Find.
  Result<Mapped> Map(uint64_t offset, uint64_t bytes, uint64_t ahead = kWindowBytes) const;
  Result<Mapped> MapPlace(uint64_t place, uint64_t bytes, uint64_t file_bytes,
                          uint64_t ahead) const;
  // Of a file of headers: takes the table of ranges from its end.
  Status ReadRanges();
  // How large a file of headers is itself.
  uint64_t HeadersSize() const;
  // Where it has these bytes; nothing: it has them not.
  std::optional<uint64_t> PlaceOf(uint64_t offset, uint64_t bytes) const;
  Status EndedEarly(uint64_t found, uint64_t offset, uint64_t expected) const;
  Status NotHere(uint64_t offset, uint64_t bytes) const;
  Status FillAt(uint64_t offset, std::span<std::byte> out) const;

  int fd_ = -1;
  std::filesystem::path path_;
  uint64_t size_ = 0;
  struct Range {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t place = 0;  // in the file of headers
  };
  std::shared_ptr<const std::vector<Range>> ranges_;  // null: the file is whole
  uint64_t number_ = 0;  // of this open file in the process, see io/mapping.h
};

// Of a file NAME of weights that is somewhere else, "NAME.headers" holds some ranges, the header
// first:
//
//     the bytes of range 1, range 2, … of NAME; range 1 begins at its start
//     for each range: u64 offset in NAME, u64 bytes; ascending, and apart from each other
//     "PREPACKH", u64 the number of ranges, u64 the size of NAME
//
// All numbers are little-endian. So it has neither the name nor the size nor the content of a whole
// file, and no program takes it for one. `prepack-remote` writes such files, and `convert
// --consume` leaves them.
inline constexpr std::string_view kHeadersSuffix = ".headers";

// Writes ranges of `file`, of which one begins at 0, as a file of headers beside it, and flushes
// it. It appears whole or not at all; one that is there is replaced.
Status WriteHeadersFile(const File& file, const ByteRanges& ranges);

// OK when `mode`, that of `path` or of what a link there leads to, is that of a regular file; else
// the error that opening it would give. It is not opened: of a device that may do something.
Status CheckRegularFile(const std::filesystem::path& path, mode_t mode);
// A whole small file as text; larger than `max_bytes` is kMalformed.
Result<std::string> ReadTextFile(const std::filesystem::path& path, uint64_t max_bytes);
// Writes a new file and flushes it.
Status WriteTextFile(const std::filesystem::path& path, std::string_view text);
// Copies a regular file into a new one, in bounded memory, and flushes it.
Status CopyFile(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes a file, or a folder with all in it, if it is there; else the error says `otherwise`.
Status RemoveIfThere(const std::filesystem::path& path,
                     std::string_view otherwise = "cannot remove it");
// Makes renames and new names in `folder` durable (fsync on the folder).
Status SyncFolder(const std::filesystem::path& folder);

// What a path names; nothing when there is nothing. That nobody can tell is an error: what is taken
// for missing may be overwritten.
Result<std::optional<struct stat>> LookAt(const std::filesystem::path& path);      // through links
Result<std::optional<struct stat>> LookAtLink(const std::filesystem::path& path);  // at links
// The absolute path, without links. That there is nothing is an error.
Result<std::filesystem::path> ResolveLinks(const std::filesystem::path& path);

// The names of all that is in a folder, hidden files as well, ascending.
Result<std::vector<std::string>> NamesIn(const std::filesystem::path& folder);

// A small file that appears whole or not at all: what a user asked to have a report written to.

// `.NAME.prepack-partial` beside a file: where it is written before a rename puts it in its place.
std::filesystem::path PartialSibling(const std::filesystem::path& path);

// Writes a file and replaces an existing one: through a sibling `.NAME.prepack-partial` and a
// rename. A symbolic link is followed. If it exists and is not a regular file (/dev/stdout, a
// FIFO), it is written to and never replaced.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

// A new file that is written piece by piece. The first error stays and is what Finish returns, so
// that those who write need not look.
class TextFile {
 public:
  static Result<TextFile> Create(const std::filesystem::path& path);

  void Append(std::string_view text);
  // Flushes to the disk.
  Status Finish();

 private:
  explicit TextFile(File file) : file_(std::move(file)) {}

  File file_;
  uint64_t bytes_ = 0;  // written so far
  Status status_;
};

}  // namespace prepack
