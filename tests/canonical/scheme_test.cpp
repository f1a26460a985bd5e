#include "canonical/scheme.h"

#include "catch.h"

namespace prepack {
namespace {

TEST_CASE("A scheme is named as users know it") {
  Scheme scheme;
  scheme.group_size = 128;
  CHECK(SchemeName(scheme) == "w4a16");
  CHECK(DescribeScheme(scheme) == "w4a16 group 128 symmetric");
  scheme.symmetric = false;
  CHECK(DescribeScheme(scheme) == "w4a16 group 128 asymmetric");
  scheme.granularity = Granularity::kChannel;
  CHECK(DescribeScheme(scheme) == "w4a16 channel asymmetric");
}

TEST_CASE("The zero point of a symmetric scheme is the middle code") {
  CHECK(CodeBits(CodeType::kU4) == 4);
  CHECK(ZeroOfSymmetric(CodeType::kU4) == 8);
}

TEST_CASE("Schemes are equal when every field is") {
  const Scheme scheme;
  Scheme other = scheme;
  CHECK(scheme == other);
  other.group_size = 32;
  CHECK_FALSE(scheme == other);
  other = scheme;
  other.symmetric = false;
  CHECK_FALSE(scheme == other);
}

}  // namespace
}  // namespace prepack
