#include "prepack/base/text.h"

#include <cstdint>

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("a number is the whole text, or there is none") {
  CHECK(ParseUint("0") == 0);
  CHECK(ParseUint("007") == 7);
  CHECK(ParseUint("18446744073709551615") == UINT64_MAX);
  CHECK(ParseUint("ff", 16) == 255);
  for (const char* text :
       {"", " 1", "1 ", "+1", "-1", "1.0", "0x10", "18446744073709551616", "a"}) {
    CAPTURE(text);
    CHECK_FALSE(ParseUint(text).has_value());
  }
}

}  // namespace
}  // namespace prepack::testing
