#include "prepack/formats/quantization_config.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("versions are their first two numbers") {
  CHECK(ParseVersionNumber("0.16.1") == VersionNumber{0, 16});
  CHECK(ParseVersionNumber("7.3.4.dev1") == VersionNumber{7, 3});
  CHECK(ParseVersionNumber("0.9b2") == VersionNumber{0, 9});
  CHECK(ParseVersionNumber("3") == VersionNumber{3, 0});
  CHECK(ParseVersionNumber("3.x") == VersionNumber{3, 0});
  for (const char* text : {"", "v1.2", ".5", "-1", "99999999999.1"}) {
    CHECK_FALSE(ParseVersionNumber(text));
  }
  CHECK(VersionNumber{0, 9}.IsBefore({0, 16}));
  CHECK_FALSE(VersionNumber{0, 16}.IsBefore({0, 16}));
  CHECK_FALSE(VersionNumber{1, 0}.IsBefore({0, 99}));
  CHECK(VersionNumber{0, 99}.IsBefore({1, 0}));
  CHECK(ShowVersion({0, 16}) == "0.16");
}

}  // namespace
}  // namespace prepack::testing
