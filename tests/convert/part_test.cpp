#include "prepack/packed/run_identity.h"

#include <vector>

#include "catch.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Value;

TEST_CASE("a part is I/N") {
  CHECK(Value(ParsePart("3/8")) == Part{3, 8});
  CHECK(Value(ParsePart("1/1")).IsWhole());
  CHECK_FALSE(Value(ParsePart("1/2")).IsWhole());
  CHECK(Value(ParsePart("99999/99999")).Text() == "99999/99999");
  for (const char* text : {"", "3", "/", "3/", "/8", "0/8", "9/8", "-1/8", "1/0", " 1/8", "1/8 ",
                           "1/8/2", "1.0/8", "1/100000", "4294967297/4294967298", "a/b"}) {
    INFO(text);
    CheckError(ParsePart(text).status(), ErrorKind::kUsage, "not a part");
  }
}

TEST_CASE("a part lies beside the output") {
  CHECK(PartFolder("/data/packed", {3, 8}) == "/data/packed.part-00003-of-00008");
  CHECK(PartFolder("packed/", {1, 1}) == "packed.part-00001-of-00001");
  CHECK(PartFolder("packed//", {1, 12}) == "packed.part-00001-of-00012");
}

TEST_CASE("parts are runs of about the same size") {
  // 100 pieces of 7 bytes over 9 parts.
  std::vector<uint64_t> bytes(9, 0);
  uint32_t last = 1;
  for (uint64_t i = 0; i < 100; ++i) {
    const uint32_t part = PartOf(i * 7, 7, 700, 9);
    CHECK(part >= last);
    last = part;
    bytes.at(part - 1) += 7;
  }
  CHECK(last == 9);
  for (const uint64_t size : bytes) {
    CHECK(size >= 70);
    CHECK(size <= 84);
  }
}

TEST_CASE("every piece has a part, whatever the sizes") {
  CHECK(PartOf(0, 0, 0, 5) == 1);            // nothing at all
  CHECK(PartOf(100, 0, 100, 5) == 5);        // an empty tensor at the very end
  CHECK(PartOf(0, 100, 100, 2) == 2);        // a single one: the part that its middle lies in
  CHECK(PartOf(0, 1, 1, 99'999) == 1);       // more parts than bytes
  const uint64_t large = uint64_t{1} << 62;  // no product that overflows
  CHECK(PartOf(large / 2, large / 2, large, 4) == 4);
}

TEST_CASE("of any two shares of the source some part reads both") {
  for (uint32_t count = 2; count <= 40; ++count) {
    INFO(count);
    for (uint32_t a = 1; a <= count; ++a) {
      REQUIRE(Witnesses({a, count}, a));
      for (uint32_t b = 1; b < a; ++b) {
        bool seen = false;
        for (uint32_t part = 1; part <= count; ++part) {
          seen = seen || (Witnesses({part, count}, a) && Witnesses({part, count}, b));
        }
        REQUIRE(seen);
      }
    }
  }
}

TEST_CASE("a part reads few shares as a witness") {
  for (const uint32_t count : {2U, 4U, 9U, 30U, 100U, 1000U}) {
    for (uint32_t part = 1; part <= count; ++part) {
      uint32_t shares = 0;
      for (uint32_t share = 1; share <= count; ++share) {
        shares += Witnesses({part, count}, share) ? 1 : 0;
      }
      REQUIRE(shares * shares < 4 * count);
    }
  }
}

}  // namespace
}  // namespace prepack
