#include "prepack/io/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include "catch.h"
#include "io_fault.h"
#include "prepack/io/noted_ranges.h"
#include "prepack/io/posix.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string ReadString(const File& file, uint64_t offset, size_t count) {
  std::string text(count, '?');
  RequireOk(file.ReadAt(offset, std::as_writable_bytes(std::span(text))));
  return text;
}

mode_t ModeOf(const std::filesystem::path& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

TEST_CASE("a file can be read back at any offset") {
  const TempFolder folder;
  File file = Value(File::CreateNew(folder / "a"));
  RequireOk(file.WriteAt(0, Bytes("hello world")));
  RequireOk(file.WriteAt(6, Bytes("there")));
  RequireOk(file.Sync());
  CHECK(ReadString(file, 0, 11) == "hello there");

  const File again = Value(File::OpenForRead(folder / "a"));
  CHECK(again.size() == 11);
  CHECK(again.path() == folder / "a");
  CHECK(ReadString(again, 6, 5) == "there");
  CHECK(ReadString(again, 11, 0).empty());
}

TEST_CASE("a file of headers has its ranges, and the size of the whole") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", "0123456789abcdef"));
  const File whole = Value(File::OpenForRead(folder / "a"));
  // Ranges that touch or overlap become one.
  RequireOk(WriteHeadersFile(whole, {{0, 3}, {2, 2}, {4, 1}, {8, 2}}));
  CHECK(ReadString(Value(File::OpenWeights(folder / "a")), 10, 6) == "abcdef");

  std::filesystem::remove(folder / "a");
  const File file = Value(File::OpenWeights(folder / "a"));
  CHECK(file.path() == folder / "a");
  CHECK(file.size() == 16);
  CHECK(file.headers_only());
  CHECK(file.present() == 5);
  CHECK(ReadString(file, 0, 5) == "01234");
  CHECK(ReadString(file, 8, 2) == "89");
  CHECK(ReadString(file, 16, 0).empty());
  std::vector<std::byte> out(2);
  for (const uint64_t offset : {4U, 5U, 7U, 9U, 14U}) {
    INFO(offset);
    CheckError(file.ReadAt(offset, out), ErrorKind::kUnsupported, "headers only");
    CheckError(file.VisitAt(offset, 2, [](const std::byte*) {}), ErrorKind::kUnsupported,
               "headers only");
  }
  CheckError(file.Pin(7, 2).status(), ErrorKind::kUnsupported, "headers only");
  std::string visited;
  const auto visit = [&](const std::byte* bytes) {
    visited.assign(reinterpret_cast<const char*>(bytes), 2);
  };
  RequireOk(file.VisitAt(8, 2, visit));
  CHECK(visited == "89");
  RequireOk(file.VisitAt(3, 2, visit));
  CHECK(visited == "34");
  RequireOk(file.VisitAt(16, 0, visit));
  CheckError(file.VisitAt(15, 2, visit), ErrorKind::kMalformed, "the file ended early");
  CHECK(file.ranges() == ByteRanges{{0, 5}, {8, 2}});
  // Nothing of the table at its end is taken for the model.
  CheckError(file.ReadAt(15, out), ErrorKind::kMalformed, "the file ended early");
  CheckError(file.ReadAt(UINT64_MAX, out), ErrorKind::kMalformed, "the file ended early");
}

struct NotedIn {
  explicit NotedIn(NotedRanges::Mode mode) { NotedRanges::OfProcess().SetMode(mode); }
  ~NotedIn() {
    NotedRanges::OfProcess().SetMode(NotedRanges::Mode::kNothing);
    NotedRanges::OfProcess().Take();
  }
  NotedIn(const NotedIn&) = delete;
  NotedIn& operator=(const NotedIn&) = delete;
};

TEST_CASE("of a file of headers, what is missing is zeros for those who only want to know") {
  constexpr uint64_t kSize = 200'000;
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", std::string(kSize, 'x')));
  RequireOk(WriteHeadersFile(Value(File::OpenForRead(folder / "a")), {{0, 100}}));
  std::filesystem::remove(folder / "a");
  const File file = Value(File::OpenWeights(folder / "a"));
  const NotedIn noted(NotedRanges::Mode::kMissing);
  CHECK(ReadString(file, 150'000, 3) == std::string(3, '\0'));
  uint64_t zeros = 0;
  RequireOk(file.VisitAt(70'001, 100'000, [&](const std::byte* bytes) {
    zeros = static_cast<uint64_t>(std::count(bytes, bytes + 100'000, std::byte{0}));
  }));
  CHECK(zeros == 100'000);
  CHECK(ReadString(file, 10, 3) == "xxx");
  const NotedRanges& ranges = NotedRanges::OfProcess();
  CHECK(ranges.Of(folder / "a") == ByteRanges{{70'001, 100'000}, {150'000, 3}});
  CHECK(ranges.Has(folder / "a", 150'002, 10));
  CHECK(ranges.Has(folder / "a", 170'000, 1));
  CHECK_FALSE(ranges.Has(folder / "a", 170'001, 1000));
  CHECK_FALSE(ranges.Has(folder / "a", 0, 70'001));
  CHECK_FALSE(ranges.Has(folder / "b", 150'002, 10));
}

TEST_CASE("what is mapped of a whole file is noted, too") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", std::string(100, 'x')));
  const File file = Value(File::OpenWeights(folder / "a"));
  const NotedIn noted(NotedRanges::Mode::kRead);
  RequireOk(file.VisitAt(20, 10, [](const std::byte*) {}));
  ReadString(file, 50, 5);
  auto taken = NotedRanges::OfProcess().Take();
  CHECK(taken.at(folder / "a") == ByteRanges{{20, 10}, {50, 5}});
  CHECK(NotedRanges::OfProcess().empty());
}

TEST_CASE("a read past the end says how much there was") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", "0123456789"));
  const File file = Value(File::OpenForRead(folder / "a"));
  std::vector<std::byte> out(8);
  CheckError(file.ReadAt(4, out), ErrorKind::kMalformed,
             "a: the file ended early (found 6 bytes at offset 4, expected 8 bytes). It is "
             "truncated, or it changed while prepack read it");
  CheckError(file.ReadAt(UINT64_MAX - 3, out), ErrorKind::kMalformed,
             "found 0 bytes at offset 18446744073709551612");
  CheckError(file.ReadAt(INT64_MAX, out), ErrorKind::kMalformed, "found 0 bytes");
}

TEST_CASE("a file that shrinks while it is open gives an error, not a signal") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", std::string(10'000, 'x')));
  const File file = Value(File::OpenForRead(folder / "a"));
  CHECK(file.size() == 10'000);
  REQUIRE(::truncate((folder / "a").c_str(), 100) == 0);
  std::vector<std::byte> out(200);
  CheckError(file.ReadAt(0, out), ErrorKind::kMalformed, "found 100 bytes at offset 0");
}

TEST_CASE("only regular files are opened") {
  const TempFolder folder;
  SECTION("a FIFO is not waited for") {
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    CheckError(File::OpenForRead(folder / "pipe").status(), ErrorKind::kMalformed,
               "pipe: not a regular file (found a FIFO, expected a regular file)");
  }
  SECTION("a folder") {
    CheckError(File::OpenForRead(folder.path()).status(), ErrorKind::kMalformed,
               "not a regular file (found a folder");
  }
  SECTION("a device") {
    CheckError(File::OpenForRead("/dev/null").status(), ErrorKind::kMalformed,
               "/dev/null: not a regular file (found a device");
  }
  SECTION("a socket") {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    REQUIRE(fd >= 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = (folder / "socket").string();
    REQUIRE(name.size() < sizeof address.sun_path);
    std::strcpy(address.sun_path, name.c_str());  // NOLINT(clang-analyzer-security*): checked above
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    CheckError(File::OpenForRead(name).status(), ErrorKind::kMalformed, "found a socket");
    ::close(fd);
  }
}

TEST_CASE("a missing file names itself and what to do") {
  const TempFolder folder;
  CheckError(File::OpenForRead(folder / "no").status(), ErrorKind::kSystem,
             "/no: cannot open it: No such file or directory. Check the path");
  std::filesystem::create_symlink("gone", folder / "link");
  CheckError(File::OpenForRead(folder / "link").status(), ErrorKind::kSystem,
             "cannot open what this symbolic link points to: No such file or directory. Is the "
             "download complete?");
}

TEST_CASE("a link to a file is followed") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "blob", "abc"));
  std::filesystem::create_symlink("blob", folder / "link");
  CHECK(Value(ReadTextFile(folder / "link", 3)) == "abc");
}

TEST_CASE("an existing file is never written over") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", "old"));
  CheckError(File::CreateNew(folder / "a").status(), ErrorKind::kSystem,
             "cannot create it: File exists");
  CheckError(WriteTextFile(folder / "a", "new"), ErrorKind::kSystem, "File exists");
  CHECK(Value(ReadTextFile(folder / "a", 10)) == "old");
}

TEST_CASE("permissions of new files come from the umask") {
  const TempFolder folder;
  const mode_t old_mask = ::umask(027);
  RequireOk(WriteTextFile(folder / "a", "x"));
  ::umask(022);
  RequireOk(CopyFile(folder / "a", folder / "b"));
  ::umask(old_mask);
  CHECK(ModeOf(folder / "a") == 0640);
  CHECK(ModeOf(folder / "b") == 0644);
}

TEST_CASE("space is reserved at once") {
  const TempFolder folder;
  File file = Value(File::CreateNew(folder / "a"));
  RequireOk(file.Allocate(1'000'000));
  CHECK(file.size() == 1'000'000);
  CHECK(std::filesystem::file_size(folder / "a") == 1'000'000);
  CHECK(ReadString(file, 999'999, 1) == std::string(1, '\0'));
  CheckError(file.Allocate(UINT64_MAX), ErrorKind::kSystem, "File too large");

  SECTION("an empty file") {
    File empty = Value(File::CreateNew(folder / "b"));
    RequireOk(empty.Allocate(0));
    CHECK(empty.size() == 0);
  }
  SECTION("a file system that cannot reserve gets a sparse file") {
    const IoFault fault(posix::Call::kReserve, EOPNOTSUPP);
    File sparse = Value(File::CreateNew(folder / "b"));
    RequireOk(sparse.Allocate(1'000'000));
    CHECK(std::filesystem::file_size(folder / "b") == 1'000'000);
    struct stat info {};
    REQUIRE(::stat((folder / "b").c_str(), &info) == 0);
    CHECK(info.st_blocks == 0);
  }
  SECTION("a full disk is told with its remedy") {
    const IoFault fault(posix::Call::kReserve, ENOSPC);
    File full = Value(File::CreateNew(folder / "b"));
    CheckError(full.Allocate(1'000'000), ErrorKind::kSystem,
               "b: cannot reserve 1000000 bytes for it: No space left on device. Free some space "
               "there or choose another output folder");
    CHECK(full.size() == 0);
  }
}

TEST_CASE("failures of the disk are reported") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", "0123"));
  std::vector<std::byte> four(4);
  SECTION("reading") {
    const File file = Value(File::OpenForRead(folder / "a"));
    const IoFault fault(posix::Call::kRead, EIO);
    CheckError(file.ReadAt(0, four), ErrorKind::kSystem, "a: cannot read it: Input/output error");
  }
  SECTION("writing") {
    const IoFault fault(posix::Call::kWrite, ENOSPC);
    CheckError(WriteTextFile(folder / "b", "x"), ErrorKind::kSystem,
               "b: cannot write to it: No space left on device. Free some space");
  }
  SECTION("writing where no file can have bytes") {
    File file = Value(File::CreateNew(folder / "b"));
    CheckError(file.WriteAt(UINT64_MAX - 2, four), ErrorKind::kSystem,
               "b: cannot write to it: File too large");
    CheckError(file.Resize(UINT64_MAX), ErrorKind::kSystem,
               "b: cannot change its size: File too large");
  }
  SECTION("flushing") {
    const IoFault fault(posix::Call::kSync, EIO);
    CheckError(WriteTextFile(folder / "b", "x"), ErrorKind::kSystem,
               "b: cannot flush it to the disk: Input/output error");
    CheckError(SyncFolder(folder.path()), ErrorKind::kSystem,
               "cannot flush the folder to the disk: Input/output error");
  }
  SECTION("a folder that cannot be flushed by its nature is no failure") {
    const IoFault fault(posix::Call::kSync, EINVAL);
    RequireOk(SyncFolder(folder.path()));
  }
}

TEST_CASE("a write that the kernel cuts short is an error with its reason") {
  const TempFolder folder;
  File file = Value(File::CreateNew(folder / "a"));
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{4096, old_limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  // The first write stops at 4096 bytes; the loop then runs into the limit.
  const Status write = file.WriteAt(0, Bytes(std::string(5000, 'x')));
  const Status reserve = file.Allocate(5000);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  std::signal(SIGXFSZ, old_handler);
  CheckError(write, ErrorKind::kSystem, "a: cannot write to it: File too large");
  CheckError(reserve, ErrorKind::kSystem, "a: cannot reserve 5000 bytes for it: File too large");
  CHECK(std::filesystem::file_size(folder / "a") == 4096);
}

TEST_CASE("a text file has a largest size") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", "0123456789"));
  CHECK(Value(ReadTextFile(folder / "a", 10)) == "0123456789");
  CheckError(ReadTextFile(folder / "a", 9).status(), ErrorKind::kMalformed,
             "(found 10 bytes, expected at most 9)");
  RequireOk(WriteTextFile(folder / "empty", ""));
  CHECK(Value(ReadTextFile(folder / "empty", 0)).empty());
}

TEST_CASE("copies are equal, at and around the size of the buffer") {
  const TempFolder folder;
  const size_t size = GENERATE(size_t{0}, size_t{1}, (size_t{1} << 20) - 1, size_t{1} << 20,
                               (size_t{1} << 20) + 1, size_t{2'500'003});
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 2654435761U >> 13);
  RequireOk(WriteTextFile(folder / "a", text));
  RequireOk(CopyFile(folder / "a", folder / "b"));
  CHECK(Value(ReadTextFile(folder / "b", size)) == text);
  CheckError(CopyFile(folder / "a", folder / "b"), ErrorKind::kSystem, "File exists");
}

TEST_CASE("threads share one file") {
  const TempFolder folder;
  File file = Value(File::CreateNew(folder / "a"));
  constexpr size_t kThreads = 4;
  constexpr size_t kBlock = 10'007;
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&file, t] {
        const std::string block(kBlock, static_cast<char>('a' + t));
        for (size_t i = t; i < 40; i += kThreads)
          if (!file.WriteAt(i * kBlock, Bytes(block)).ok()) std::abort();
      });
    }
  }
  const std::string all = Value(ReadTextFile(folder / "a", 40 * kBlock));
  REQUIRE(all.size() == 40 * kBlock);
  for (size_t i = 0; i < 40; ++i) {
    CHECK(all.substr(i * kBlock, kBlock) ==
          std::string(kBlock, static_cast<char>('a' + i % kThreads)));
  }
}

TEST_CASE("a file that was moved from closes nothing twice") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", "aaa"));
  RequireOk(WriteTextFile(folder / "b", "bbb"));
  File first = Value(File::OpenForRead(folder / "a"));
  File second = std::move(first);
  CHECK(ReadString(second, 0, 3) == "aaa");
  second = Value(File::OpenForRead(folder / "b"));
  CHECK(ReadString(second, 0, 3) == "bbb");
  CHECK(second.path() == folder / "b");
}

TEST_CASE("descriptors do not leak into child processes") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "a", "aaa"));
  const int next = ::open((folder / "a").c_str(), O_RDONLY | O_CLOEXEC);
  ::close(next);
  const File file = Value(File::OpenForRead(folder / "a"));  // takes the lowest free number: `next`
  CHECK((::fcntl(next, F_GETFD) & FD_CLOEXEC) != 0);
}

}  // namespace
}  // namespace prepack::testing
