#include "table.h"

#include <vector>

#include "catch.h"

namespace prepack::cli {
namespace {

TEST_CASE("bytes are shown in decimal units") {
  CHECK(HumanBytes(0) == "0 B");
  CHECK(HumanBytes(999) == "999 B");
  CHECK(HumanBytes(1000) == "1.0 kB");
  CHECK(HumanBytes(999'949) == "999.9 kB");
  CHECK(HumanBytes(999'950) == "1.0 MB");
  CHECK(HumanBytes(4'700'000'000) == "4.7 GB");
  CHECK(HumanBytes(UINT64_MAX) == "18.4 EB");
}

TEST_CASE("numbers of things are shown with a prefix and a plural") {
  CHECK(HumanCount(999) == "999");
  CHECK(HumanCount(1000) == "1.0 k");
  CHECK(HumanCount(8'030'261'248) == "8.0 G");
  CHECK(Plural(0, "file") == "0 files");
  CHECK(Plural(1, "file") == "1 file");
  CHECK(Plural(2, "file") == "2 files");
}

TEST_CASE("durations are shown in two units at most") {
  CHECK(HumanSeconds(0.2) == "0 s");
  CHECK(HumanSeconds(59.4) == "59 s");
  CHECK(HumanSeconds(59.6) == "1 min 0 s");
  CHECK(HumanSeconds(3725) == "1 h 2 min");
}

TEST_CASE("shapes are shown as lists") {
  CHECK(ShapeText(std::vector<uint64_t>{}) == "[]");
  CHECK(ShapeText(std::vector<uint64_t>{384, 1536}) == "[384, 1536]");
}

TEST_CASE("numbers are read in decimal and in hex, and nothing else is a number") {
  CHECK(ParseCount("4096") == 4096);
  CHECK(ParseCount("0x1F") == 31);
  CHECK(ParseCount("18446744073709551615") == UINT64_MAX);
  for (const char* wrong : {"", "0x", "-1", "+1", " 1", "1 ", "1.5", "18446744073709551616"}) {
    CAPTURE(wrong);
    CHECK_FALSE(ParseCount(wrong).has_value());
  }
}

}  // namespace
}  // namespace prepack::cli
