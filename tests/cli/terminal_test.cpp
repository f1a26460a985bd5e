#include "terminal.h"

#include "catch.h"

namespace prepack::cli {
namespace {

TEST_CASE("columns are characters; colours take none") {
  CHECK(Columns("größe") == 5);
  CHECK(Columns("\x1b[1;31mbad\x1b[0m…") == 4);
  CHECK(Columns("\x1b[") == 0);  // cut off
  CHECK(Columns("") == 0);
}

TEST_CASE("text loses its middle when it is too wide") {
  CHECK(Shortened("abcdefgh", 8) == "abcdefgh");
  CHECK(Shortened("abcdefgh", 7) == "abc…fgh");
  CHECK(Shortened("abcdefgh", 6) == "ab…fgh");
  CHECK(Shortened("größer", 4) == "g…er");
  CHECK(Shortened("öäüöäü", 5) == "öä…äü");
  CHECK(Shortened("abc", 1) == "…");
  CHECK(Shortened("abc", 0) == "…");
}

TEST_CASE("what we write has a spelling in ASCII; other text stays") {
  CHECK(ToAscii("3 × 4 … ≥ 2 → größe") == "3 x 4 ... >= 2 -> größe");
}

TEST_CASE("without a terminal there is text in UTF-8, without colours and limits") {
  const Display& display = DisplayOf(Stream::kStdout);
  if (display.is_terminal) return;  // someone looks at the tests
  CHECK(display.unicode);
  CHECK_FALSE(display.colour);
  CHECK(display.width == 0);
  CHECK(Paint(Tone::kBad, "bad") == "bad");
}

}  // namespace
}  // namespace prepack::cli
