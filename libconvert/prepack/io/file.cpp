#include "prepack/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/io/mapping.h"
#include "prepack/io/missing_files.h"
#include "prepack/io/noted_ranges.h"
#include "prepack/io/posix.h"

namespace prepack {
namespace {

// What off_t can say. A longer range can only come from a broken file or a caller's mistake.
constexpr uint64_t kMaxOffset = static_cast<uint64_t>(std::numeric_limits<off_t>::max());
std::atomic<uint64_t> next_number = 1;
constexpr size_t kCopyBytes = size_t{128} << 10;  // stays in the L2 cache
// Runs that are far apart: no hardware foresees them, so they are asked for ahead of the copy.
constexpr uint64_t kRunsAhead = 16;

void AskFor(const std::byte* bytes, uint64_t count) {
  constexpr uint64_t kLineBytes = 64;
  for (uint64_t i = 0; i < count; i += kLineBytes) __builtin_prefetch(bytes + i);
}

std::string_view KindName(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Status NotRegular(const std::string& where, std::string_view kind) {
  return Malformed(where, "not a regular file").Found(kind).Expected("a regular file");
}

Status OpenError(const std::filesystem::path& path, int errnum) {
  const std::string where = path.string();
  if (errnum == ENXIO) return NotRegular(where, KindName(S_IFSOCK));
  if (errnum != ENOENT) return SystemError(where, "cannot open it", errnum);
  std::error_code ignored;
  const bool is_link = std::filesystem::is_symlink(path, ignored);
  return SystemError(where,
                     is_link ? "cannot open what this symbolic link points to" : "cannot open it",
                     errnum)
      .Hint(is_link ? "Is the download complete?" : "Check the path");
}

}  // namespace

File::File(int fd, std::filesystem::path path, uint64_t size)
    : fd_(fd), path_(std::move(path)), size_(size), number_(next_number.fetch_add(1)) {}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_),
      ranges_(std::move(other.ranges_)),
      number_(other.number_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  std::swap(ranges_, other.ranges_);
  std::swap(number_, other.number_);
  return *this;
}

File::~File() {
  if (fd_ < 0) return;
  MappedWindows::OfProcess().Forget(number_);
  // Nothing is lost when close fails: what must last has been through Sync or CheckArrived.
  ::close(fd_);
}

Result<File> File::Open(const std::filesystem::path& path, int access) {
  // O_NONBLOCK: opening a FIFO that nobody writes to would otherwise wait for ever.
  const int fd = posix::Open(path, access | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return OpenError(path, -fd);
  File file(fd, path, 0);
  struct stat info {};
  if (const int result = posix::LookAtOpen(fd, info); result < 0) {
    return SystemError(path.string(), "cannot read its size", -result);
  }
  if (!S_ISREG(info.st_mode)) return NotRegular(path.string(), KindName(info.st_mode));
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

Result<File> File::OpenForRead(const std::filesystem::path& path) {
  return Open(path, O_RDONLY);
}

Result<File> File::OpenForUpdate(const std::filesystem::path& path) {
  return Open(path, O_RDWR);
}

Result<File> File::CreateNew(const std::filesystem::path& path) {
  const int fd = posix::Open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
  if (fd < 0) return SystemError(path.string(), "cannot create it", -fd);
  return File(fd, path, 0);
}

Status File::EndedEarly(uint64_t found, uint64_t offset, uint64_t expected) const {
  return Malformed(path_.string(), "the file ended early")
      .Found(fmt::format("{} bytes at offset {}", found, offset))
      .Expected(fmt::format("{} bytes", expected))
      .Hint("It is truncated, or it changed while prepack read it");
}

Status File::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  NotedRanges& noted = NotedRanges::OfProcess();
  if (!headers_only()) {
    if (noted.mode() == NotedRanges::Mode::kRead) noted.Note(path_, offset, out.size());
    return FillAt(offset, out);
  }
  if (offset > size_ || out.size() > size_ - offset)
    return EndedEarly(offset < size_ ? size_ - offset : 0, offset, out.size());
  if (out.empty()) return {};
  const std::optional<uint64_t> place = PlaceOf(offset, out.size());
  if (place) return FillAt(*place, out);
  if (MissingFiles::OfProcess().Can()) {
    PREPACK_TRY_ASSIGN(const File* whole, MissingFiles::OfProcess().Whole(*this));
    return whole->ReadAt(offset, out);
  }
  if (noted.mode() != NotedRanges::Mode::kMissing || !noted.Note(path_, offset, out.size())) {
    return NotHere(offset, out.size());
  }
  std::ranges::fill(out, std::byte{0});
  return {};
}

Status File::FillAt(uint64_t offset, std::span<std::byte> out) const {
  // No file has bytes past what off_t can say; the kernel would call such a range invalid.
  const bool is_possible = out.size() <= kMaxOffset && offset <= kMaxOffset - out.size();
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = is_possible ? posix::ReadSome(fd_, offset + done, out.subspan(done)) : 0;
    if (count < 0) return SystemError(path_.string(), "cannot read it", static_cast<int>(-count));
    if (count == 0) return EndedEarly(done, offset, out.size());
    done += static_cast<size_t>(count);
  }
  return {};
}

Status File::ReadRunsAt(const ByteRuns& runs, std::span<std::byte> out) const {
  // One system call costs about as much as copying this many bytes.
  constexpr uint64_t kWorthACall = uint64_t{16} * 1024;
  if (runs.runs == 1 || runs.stride == runs.run_bytes) return ReadAt(runs.offset, out);
  // What is mapped cannot be noted.
  const bool by_calls =
      headers_only() || NotedRanges::OfProcess().mode() == NotedRanges::Mode::kRead;
  if (runs.run_bytes >= kWorthACall || by_calls) {
    for (uint64_t run = 0; run < runs.runs; ++run) {
      PREPACK_TRY(ReadAt(runs.offset + run * runs.stride,
                         out.subspan(run * runs.run_bytes, runs.run_bytes)));
    }
    return {};
  }
  // A length that no file has is an end that is missed.
  return VisitAt(runs.offset, runs.Span().value_or(kMaxOffset), [&](const std::byte* from) {
    for (uint64_t run = 0; run < runs.runs; ++run) {
      if (run + kRunsAhead < runs.runs) {
        AskFor(from + (run + kRunsAhead) * runs.stride, runs.run_bytes);
      }
      std::memcpy(out.data() + run * runs.run_bytes, from + run * runs.stride, runs.run_bytes);
    }
  });
}

namespace {

Status VisitMapping(const std::filesystem::path& path, const Mapping& mapping, uint64_t offset,
                    ByteVisitor work, VisitThreads threads) {
  if (mapping.Visit(offset, work, threads)) return {};
  return Malformed(path.string(), "the file shrank while prepack read it")
      .Hint("It was truncated or replaced, or the disk failed");
}

}  // namespace

namespace {

// In place of what is not here.
Result<std::shared_ptr<const Mapping>> MapZeros(const std::filesystem::path& path, uint64_t offset,
                                                uint64_t bytes) {
  constexpr uint64_t kPages = uint64_t{64} << 10;  // a multiple of any page size
  const int fd = posix::Open("/dev/zero", O_RDONLY);
  if (fd < 0) return SystemError(path.string(), "cannot open /dev/zero in its place", -fd);
  int error = 0;
  const uint64_t begin = offset / kPages * kPages;
  std::shared_ptr<const Mapping> mapping = Mapping::Map(fd, begin, offset - begin + bytes, error);
  ::close(fd);
  if (mapping == nullptr) return SystemError(path.string(), "cannot map zeros", error);
  return mapping;
}

}  // namespace

Result<File::Mapped> File::MapPlace(uint64_t place, uint64_t bytes, uint64_t file_bytes,
                                    uint64_t ahead) const {
  int error = 0;
  const MappedWindows::OpenFile file{.number = number_, .fd = fd_, .bytes = file_bytes};
  Mapped mapped{.mapping = MappedWindows::OfProcess().Find(file, place, bytes, ahead, error),
                .place = place};
  if (mapped.mapping == nullptr) return SystemError(path_.string(), "cannot map it", error);
  return mapped;
}

Result<File::Mapped> File::Map(uint64_t offset, uint64_t bytes, uint64_t ahead) const {
  if (offset > size_ || bytes > size_ - offset) {
    return Malformed(path_.string(), "the file ended early")
        .Found(fmt::format("{} bytes", size_))
        .Hint("It is truncated, or it changed while prepack read it");
  }
  if (bytes == 0) return Mapped();
  NotedRanges& noted = NotedRanges::OfProcess();
  if (!headers_only()) {
    if (noted.mode() == NotedRanges::Mode::kRead) noted.Note(path_, offset, bytes);
    return MapPlace(offset, bytes, size_, ahead);
  }
  if (const std::optional<uint64_t> place = PlaceOf(offset, bytes)) {
    return MapPlace(*place, bytes, HeadersSize(), ahead);
  }
  if (MissingFiles::OfProcess().Can()) {
    PREPACK_TRY_ASSIGN(const File* whole, MissingFiles::OfProcess().Whole(*this));
    return whole->Map(offset, bytes, ahead);
  }
  if (noted.mode() == NotedRanges::Mode::kMissing && noted.Note(path_, offset, bytes)) {
    PREPACK_TRY_ASSIGN(std::shared_ptr<const Mapping> zeros, MapZeros(path_, offset, bytes));
    return Mapped{.mapping = std::move(zeros), .place = offset};
  }
  return NotHere(offset, bytes);
}

Status File::VisitAt(uint64_t offset, uint64_t bytes, ByteVisitor work,
                     VisitThreads threads) const {
  PREPACK_TRY_ASSIGN(const Mapped mapped, Map(offset, bytes));
  if (mapped.mapping == nullptr) return {};
  return VisitMapping(path_, *mapped.mapping, mapped.place, work, threads);
}

Status File::VisitRunsAt(const ByteRuns& runs, ByteVisitor work) const {
  const uint64_t bytes = runs.Span().value_or(kMaxOffset);
  const uint64_t ahead = bytes < kWindowBytes / 2 ? kWindowBytes : kWideWindowBytes;
  PREPACK_TRY_ASSIGN(const Mapped mapped, Map(runs.offset, bytes, ahead));
  if (mapped.mapping == nullptr) return {};
  return VisitMapping(path_, *mapped.mapping, mapped.place, work, VisitThreads::kThisOne);
}

void File::MapTogether(uint64_t offset, uint64_t bytes) const {
  const bool is_noted = NotedRanges::OfProcess().mode() != NotedRanges::Mode::kNothing;
  if (bytes <= kWindowBytes || bytes > kMostTogether || headers_only() || is_noted) return;
  const Result<Mapped> unused = Map(offset, bytes, 0);
}

Result<PinnedBytes> File::Pin(uint64_t offset, uint64_t bytes) const {
  PREPACK_TRY_ASSIGN(Mapped mapped, Map(offset, bytes));
  PinnedBytes pinned;
  pinned.mapping_ = std::move(mapped.mapping);
  pinned.path_ = path_;
  pinned.offset_ = mapped.place;
  pinned.bytes_ = bytes;
  return pinned;
}

Status PinnedBytes::Visit(FunctionRef<void(std::span<const std::byte> bytes)> work,
                          VisitThreads threads) const {
  if (mapping_ == nullptr) return {};
  const auto visit = [&](const std::byte* bytes) { work({bytes, bytes_}); };
  return VisitMapping(path_, *mapping_, offset_, visit, threads);
}

Status File::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxOffset || offset > kMaxOffset - bytes.size())
    return SystemError(path_.string(), "cannot write to it", EFBIG);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = posix::WriteSome(fd_, offset + done, bytes.subspan(done));
    if (count < 0)
      return SystemError(path_.string(), "cannot write to it", static_cast<int>(-count));
    // Not an error for POSIX, but without this a file system that does it would hold us here.
    if (count == 0) return SystemError(path_.string(), "cannot write to it", EIO);
    done += static_cast<size_t>(count);
  }
  return {};
}

Status File::Allocate(uint64_t bytes) {
  if (bytes > kMaxOffset) return SystemError(path_.string(), "cannot reserve space for it", EFBIG);
  // fallocate takes no length of zero.
  int result = bytes == 0 ? -EOPNOTSUPP : posix::Reserve(fd_, bytes);
  if (result == -EOPNOTSUPP || result == -ENOSYS || result == -EINVAL)
    result = posix::Resize(fd_, bytes);
  if (result < 0) {
    return SystemError(path_.string(), fmt::format("cannot reserve {} bytes for it", bytes),
                       -result);
  }
  size_ = bytes;
  return {};
}

Status File::Resize(uint64_t bytes) {
  const int result = bytes > kMaxOffset ? -EFBIG : posix::Resize(fd_, bytes);
  if (result < 0) return SystemError(path_.string(), "cannot change its size", -result);
  size_ = bytes;
  return {};
}

void File::StartWriteback() {
  posix::StartWriteback(fd_);
}

Status File::Sync() {
  const int result = posix::SyncData(fd_);
  if (result < 0) return SystemError(path_.string(), "cannot flush it to the disk", -result);
  return {};
}

Status File::CheckArrived() {
  const int result = posix::CloseCopy(fd_);
  if (result < 0) return SystemError(path_.string(), "cannot write to it", -result);
  return {};
}

Status CheckRegularFile(const std::filesystem::path& path, mode_t mode) {
  return S_ISREG(mode) ? Status() : NotRegular(path.string(), KindName(mode));
}

Result<std::string> ReadTextFile(const std::filesystem::path& path, uint64_t max_bytes) {
  PREPACK_TRY_ASSIGN(File file, File::OpenForRead(path));
  if (file.size() > max_bytes) {
    return Malformed(path.string(), "the file is too large")
        .Found(fmt::format("{} bytes", file.size()))
        .Expected(fmt::format("at most {}", max_bytes));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  PREPACK_TRY(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status WriteTextFile(const std::filesystem::path& path, std::string_view text) {
  PREPACK_TRY_ASSIGN(File file, File::CreateNew(path));
  PREPACK_TRY(file.WriteAt(0, std::as_bytes(std::span(text))));
  return file.Sync();
}

Status CopyFile(const std::filesystem::path& from, const std::filesystem::path& to) {
  PREPACK_TRY_ASSIGN(File source, File::OpenForRead(from));
  PREPACK_TRY_ASSIGN(File copy, File::CreateNew(to));
  PREPACK_TRY(copy.Allocate(source.size()));

  std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(source.size(), kCopyBytes)));
  for (uint64_t offset = 0; offset < source.size(); offset += buffer.size()) {
    const uint64_t rest = source.size() - offset;
    const std::span chunk(buffer.data(),
                          static_cast<size_t>(std::min<uint64_t>(rest, buffer.size())));
    PREPACK_TRY(source.ReadAt(offset, chunk));
    PREPACK_TRY(copy.WriteAt(offset, chunk));
  }
  return copy.Sync();
}

Status SyncFolder(const std::filesystem::path& folder) {
  const int fd = posix::Open(folder, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return SystemError(folder.string(), "cannot open the folder", -fd);
  const int result = posix::SyncAll(fd);
  ::close(fd);
  // EINVAL: the file system has no way to flush a folder (some network ones); nothing to do there.
  if (result < 0 && result != -EINVAL)
    return SystemError(folder.string(), "cannot flush the folder to the disk", -result);
  return {};
}

namespace {

Status CannotLook(const std::filesystem::path& path, int result) {
  return SystemError(path.string(), "cannot examine it", -result);
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

Result<std::vector<std::string>> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  const int result = posix::List(folder, names);
  if (result < 0) return SystemError(folder.string(), "cannot list the folder", -result);
  std::ranges::sort(names);
  return names;
}

namespace {

Status WriteToSpecialFile(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size())).flush();
  if (file) return {};
  return SystemError(path.string(), "cannot write to it", EIO);
}

}  // namespace

std::filesystem::path PartialSibling(const std::filesystem::path& path) {
  return path.parent_path() / fmt::format(".{}.prepack-partial", path.filename().string());
}

Status WriteFileAtomically(const std::filesystem::path& given, std::string_view text) {
  if (!given.has_filename()) return Usage(given.string(), "not the name of a file");
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> there, LookAt(given));
  std::filesystem::path path = given;
  if (there) {
    const mode_t mode = there->st_mode;
    if (!S_ISREG(mode) && !S_ISDIR(mode)) return WriteToSpecialFile(given, text);
    PREPACK_TRY_ASSIGN(std::filesystem::path resolved, ResolveLinks(given));
    path = std::move(resolved);
  }
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const OrderlyEnd orderly_end;
  const std::filesystem::path partial = PartialSibling(path);
  PREPACK_TRY(RemoveIfThere(partial));
  Status status = WriteTextFile(partial, text);
  if (status.ok()) {
    const int result = posix::Rename(partial, path);
    if (result < 0) status = SystemError(path.string(), "cannot write it", -result);
  }
  if (!status.ok()) {
    (void)posix::RemoveTree(partial);
    return status;
  }
  return SyncFolder(folder);
}

Status RemoveIfThere(const std::filesystem::path& path, std::string_view otherwise) {
  const int removed = posix::RemoveTree(path);
  return removed < 0 ? SystemError(path.string(), otherwise, -removed) : Status();
}

Result<TextFile> TextFile::Create(const std::filesystem::path& path) {
  PREPACK_TRY_ASSIGN(File file, File::CreateNew(path));
  return TextFile(std::move(file));
}

void TextFile::Append(std::string_view text) {
  if (!status_.ok()) return;
  status_ = file_.WriteAt(bytes_, std::as_bytes(std::span(text)));
  bytes_ += text.size();
}

Status TextFile::Finish() {
  return status_.ok() ? file_.Sync() : status_;
}

}  // namespace prepack
