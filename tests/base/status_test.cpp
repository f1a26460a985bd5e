#include "prepack/base/status.h"

#include <cerrno>
#include <string>
#include <utility>

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("success says nothing and exits with 0") {
  const Status status;
  CHECK(status.ok());
  CHECK(status.ToString().empty());
  CHECK(ExitCode(status) == 0);
  CHECK(Status().In("file").ok());
}

TEST_CASE("every kind has the exit code that is documented") {
  CHECK(ExitCode(CheckFailed("a", "b")) == 1);
  CHECK(ExitCode(Usage("a", "b")) == 2);
  CHECK(ExitCode(Malformed("a", "b")) == 3);
  CHECK(ExitCode(SystemError("a", "b", EIO)) == 4);
  CHECK(ExitCode(Unsupported("a", "b")) == 5);
  CHECK(ExitCode(Unavailable("a", "b")) == 6);
  CHECK(ExitCode(Interrupted("a")) == 130);
}

TEST_CASE("a message has a part for each question") {
  CHECK(Malformed("f", "bad").ToString() == "f: bad");
  CHECK(Malformed("", "bad").ToString() == "bad");
  CHECK(Malformed("f", "bad").Found("1").ToString() == "f: bad (found 1)");
  CHECK(Malformed("f", "bad").Expected("2").ToString() == "f: bad (expected 2)");
  CHECK(Malformed("f", "bad").Found("1").Expected("2").ToString() ==
        "f: bad (found 1, expected 2)");
  CHECK(Malformed("f", "bad").Hint("Do this").ToString() == "f: bad. Do this");
  CHECK(Malformed("f", "bad").Found("1").Expected("2").Hint("Do this").ToString() ==
        "f: bad (found 1, expected 2). Do this");
  CHECK(Interrupted("convert").ToString() == "convert: stopped on request");
}

TEST_CASE("the parts can be read one by one") {
  const Status status = Unsupported("w", "x").Found("f").Expected("e").Hint("h");
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kUnsupported);
  CHECK(status.where() == "w");
  CHECK(status.what() == "x");
  CHECK(status.found() == "f");
  CHECK(status.expected() == "e");
  CHECK(status.hint() == "h");
}

TEST_CASE("a place is put in front, from the inside out") {
  CHECK(Malformed("shape", "bad").In("tensor a").In("f.safetensors").ToString() ==
        "f.safetensors: tensor a: shape: bad");
  CHECK(Malformed("", "bad").In("f").ToString() == "f: bad");
}

TEST_CASE("a named status can be built on") {
  Status status = Usage("w", "x");
  status.Found("f").Expected("e").Hint("h");
  CHECK(status.ToString() == "w: x (found f, expected e). h");
}

TEST_CASE("copies are independent") {
  Status original = Usage("w", "x");
  Status copy = original;
  copy.Found("1");
  CHECK(original.ToString() == "w: x");
  CHECK(copy.ToString() == "w: x (found 1)");
  const Status& same = copy;
  copy = same;
  CHECK(copy.ToString() == "w: x (found 1)");
  copy = Status();
  CHECK(copy.ok());
  copy = original;
  CHECK(copy.ToString() == "w: x");
}

TEST_CASE("moving takes the error along") {
  Status original = Usage("w", "x");
  const Status moved = std::move(original);
  CHECK(moved.ToString() == "w: x");
}

TEST_CASE("a failed system call says why, and what to do") {
  CHECK(SystemError("f", "write", ENOSPC).ToString() ==
        "f: write: No space left on device. Free some space there or choose another output folder");
  CHECK(SystemError("f", "open", EACCES).ToString() ==
        "f: open: Permission denied. Check the permissions of the folder or choose another one");
  CHECK(SystemError("f", "open", EMFILE).ToString() ==
        "f: open: Too many open files. Raise the limit on open files (ulimit -n)");
  CHECK(SystemError("f", "read", EIO).ToString() ==
        "f: read: Input/output error. The disk or the connection to it failed; the kernel's log "
        "(dmesg) says more");
  CHECK(SystemError("f", "write", EDQUOT).ToString() ==
        "f: write: Disk quota exceeded. Your disk quota is used up: free some space, or choose "
        "another output folder");
  CHECK(SystemError("f", "write", EFBIG).ToString() ==
        "f: write: File too large. Raise the file size limit (ulimit -f), or choose a file system "
        "that supports such large files");
  CHECK(SystemError("f", "write", ESTALE).hint() ==
        "The file was replaced or removed on the server in the meantime; try again");
  CHECK(SystemError("f", "lock", ENOLCK).hint() ==
        "The file system cannot lock files; choose an output folder on another one");
  CHECK(SystemError("f", "open", ENAMETOOLONG).hint() == "Choose a shorter name");
  CHECK(SystemError("f", "open", EISDIR).hint().empty());
}

TEST_CASE("a message from a hostile file stays on one line, in every part") {
  const Status status = Malformed("a\nb", "c\x1b[2J").Found("\x07").Expected("\r").Hint("\x7f");
  CHECK(status.ToString() == "a\\x0ab: c\\x1b[2J (found \\x07, expected \\x0d). \\x7f");
}

TEST_CASE("a message from a hostile file has an end") {
  const std::string endless(5'000'000, 'x');
  const Status status = Malformed(endless, endless).Found(endless).Expected(endless).Hint(endless);
  CHECK(status.ToString().size() < 11'000);
}

Result<int> HalfOf(int number) {
  if (number % 2 != 0) return Malformed("number", "it is odd");
  return number / 2;
}

Status CheckSmall(int number) {
  return number < 10 ? Status() : Usage("number", "it is large");
}

Result<int> QuarterOf(int number) {
  PREPACK_TRY(CheckSmall(number));
  PREPACK_TRY_ASSIGN(const int half, HalfOf(number));
  PREPACK_TRY_ASSIGN(int quarter, HalfOf(half));
  return quarter;
}

TEST_CASE("an error is handed on, and nothing after it runs") {
  CHECK(*QuarterOf(8) == 2);
  CHECK(QuarterOf(12).status().ToString() == "number: it is large");
  CHECK(QuarterOf(7).status().ToString() == "number: it is odd");
  CHECK(QuarterOf(6).status().kind() == ErrorKind::kMalformed);
}

// A lambda that is an argument has macros of its own.
TEST_CASE("handing on inside of what is handed on") {
  const auto run = [](int number) -> Result<int> {
    PREPACK_TRY([&]() -> Status {
      PREPACK_TRY(CheckSmall(number));
      PREPACK_TRY_ASSIGN(const int half, HalfOf(number));
      return CheckSmall(half * 4);
    }());
    return number;
  };
  CHECK(*run(4) == 4);
  CHECK(run(8).status().ToString() == "number: it is large");
  CHECK(run(3).status().ToString() == "number: it is odd");
}

}  // namespace
}  // namespace prepack
