#include "prepack/io/file.h"

#include <cerrno>

#include "catch.h"
#include "io_fault.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TEST_CASE("text is written piece by piece") {
  const TempFolder temp;
  Result<TextFile> file = TextFile::Create(temp / "a.txt");
  REQUIRE(file.ok());
  for (const char* piece : {"one ", "", "two ", "three\n"}) file->Append(piece);
  REQUIRE(file->Finish().ok());
  const Result<std::string> text = ReadTextFile(temp / "a.txt", 100);
  REQUIRE(text.ok());
  CHECK(*text == "one two three\n");
  CHECK_FALSE(TextFile::Create(temp / "a.txt").ok());  // it is there already
}

TEST_CASE("an error of one piece is an error of the whole") {
  const TempFolder temp;
  Result<TextFile> file = TextFile::Create(temp / "a.txt");
  REQUIRE(file.ok());
  {
    const IoFault fault(posix::Call::kWrite, ENOSPC);
    file->Append("lost");
  }
  file->Append("kept from being written, too");
  const Status status = file->Finish();
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kSystem);
  CHECK_THAT(status.ToString(), Catch::Contains("a.txt"));
  CHECK(std::filesystem::file_size(temp / "a.txt") == 0);
}

}  // namespace
}  // namespace prepack::testing
