#include "prepack/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

#include "catch.h"
#include "io_fault.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

size_t Entries(const std::filesystem::path& folder) {
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++entries;
  return entries;
}

TEST_CASE("a file is replaced whole") {
  const TempFolder folder;
  const auto path = folder / "out.xml";
  RequireOk(WriteFileAtomically(path, "one"));
  RequireOk(WriteFileAtomically(path, "two"));
  CHECK(Value(ReadTextFile(path, 100)) == "two");
  CHECK(Entries(folder.path()) == 1);
}

TEST_CASE("a symbolic link is followed, and stays one") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "latest.xml", "old"));
  std::filesystem::create_symlink("latest.xml", folder / "out.xml");
  RequireOk(WriteFileAtomically(folder / "out.xml", "report"));
  CHECK(std::filesystem::is_symlink(folder / "out.xml"));
  CHECK(Value(ReadTextFile(folder / "latest.xml", 100)) == "report");
  CHECK(Entries(folder.path()) == 2);
}

TEST_CASE("what is no regular file is written to, not replaced") {
  const TempFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  RequireOk(WriteFileAtomically(folder / "pipe", "report"));
  std::array<char, 16> text{};
  CHECK(::read(reader, text.data(), text.size()) == 6);
  CHECK(std::string(text.data()) == "report");
  ::close(reader);
  CHECK(std::filesystem::is_fifo(folder / "pipe"));
}

TEST_CASE("a device that takes nothing is an error, and is still there") {
  CheckError(WriteFileAtomically("/dev/full", "report"), ErrorKind::kSystem,
             "/dev/full: cannot write to it");
  CHECK(std::filesystem::is_character_file("/dev/full"));
}

TEST_CASE("a file that cannot be written leaves nothing behind") {
  const TempFolder folder;
  CheckError(WriteFileAtomically(folder / "none" / "out.xml", "x"), ErrorKind::kSystem, "none");
  CheckError(WriteFileAtomically(folder.path() / "", "x"), ErrorKind::kUsage, "not the name");
  std::filesystem::create_directory(folder / "taken");
  CheckError(WriteFileAtomically(folder / "taken", "x"), ErrorKind::kSystem, "cannot write it");
  CHECK(Entries(folder.path()) == 1);
  const IoFault fault(posix::Call::kRemove, EACCES);
  CheckError(WriteFileAtomically(folder / "out.xml", "x"), ErrorKind::kSystem,
             ".out.xml.prepack-partial: cannot remove it");
}

}  // namespace
}  // namespace prepack::testing
