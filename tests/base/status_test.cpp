#include "base/status.h"

#include <cerrno>
#include <string>
#include <utility>

#include "base/result.h"
#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("success is nothing") {
  const Status status;
  CHECK(status.ok());
  CHECK(status.ToString() == "");
  CHECK(ExitCode(status) == 0);
}

TEST_CASE("an error reads as place, fault, found, expected, hint") {
  Status status = Malformed("tensor a.b", "the shape is wrong").Found("[4]").Expected("[8]");
  CHECK(status.ToString() == "tensor a.b: the shape is wrong (found [4], expected [8])");
  status.Hint("Download it again");
  status = std::move(status).In("model.safetensors");
  CHECK(status.ToString() ==
        "model.safetensors: tensor a.b: the shape is wrong (found [4], expected [8]). Download it "
        "again");
  CHECK(Malformed("", "odd").Expected("even").ToString() == "odd (expected even)");
  CHECK(Malformed("", "odd").In("file").ToString() == "file: odd");
  CHECK(Malformed("x", "odd").Found("1").ToString() == "x: odd (found 1)");
}

TEST_CASE("kinds are the documented exit codes") {
  CHECK(ExitCode(CheckFailed("", "")) == 1);
  CHECK(ExitCode(Usage("", "")) == 2);
  CHECK(ExitCode(Malformed("", "")) == 3);
  CHECK(ExitCode(SystemError("", "", EIO)) == 4);
  CHECK(ExitCode(Unsupported("", "")) == 5);
  CHECK(ExitCode(Unavailable("", "")) == 6);
  CHECK(ExitCode(Interrupted("")) == 130);
}

TEST_CASE("system errors say what the system said and what to do") {
  CHECK(
      SystemError("out", "cannot write", ENOSPC).ToString() ==
      "out: cannot write: No space left on device. Free some space there or choose another output "
      "folder");
  CHECK(SystemError("out", "cannot write", EROFS).hint() ==
        "Check the permissions of the folder or choose another one");
  CHECK(SystemError("out", "cannot read", EIO).hint() == "");
}

TEST_CASE("copies are independent") {
  const Status first = Malformed("a", "b");
  Status second = first;
  second.Hint("c");
  CHECK(first.hint() == "");
  CHECK(second.hint() == "c");
  second = first;
  CHECK(second.ToString() == first.ToString());
}

TEST_CASE("a result is a value or an error") {
  const Result<std::string> value = std::string("text");
  REQUIRE(value.ok());
  CHECK(*value == "text");
  CHECK(value->size() == 4);
  CHECK(value.status().ok());
  const Result<std::string> error = Malformed("a", "b");
  CHECK_FALSE(error.ok());
  CHECK(error.status().what() == "b");
}

TEST_CASE("hostile text is shown on one harmless line") {
  CHECK(Printable("plain größe") == "plain größe");
  CHECK(Printable("a\nb\x1b[31m\x7f") == "a\\x0ab\\x1b[31m\\x7f");
  CHECK(Printable(std::string("nul\0", 4)) == "nul\\x00");
  CHECK(Printable("\xC3") == "\\xc3");                    // cut off
  CHECK(Printable("\xC0\xAF") == "\\xc0\\xaf");           // overlong
  CHECK(Printable("\xED\xA0\x80") == "\\xed\\xa0\\x80");  // surrogate
  CHECK(Printable("\xC2\x9B") == "\\xc2\\x9b");           // C1 control
  CHECK(Printable("\xF0\x9F\x98\x80") == "\xF0\x9F\x98\x80");
  CHECK(Printable(std::string(300, 'a')) == std::string(200, 'a') + "…");
}

}  // namespace
}  // namespace prepack
