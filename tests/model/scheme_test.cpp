#include "prepack/model/scheme.h"

#include "catch.h"

namespace prepack::testing {
namespace {

TEST_CASE("a scheme is named as users know it") {
  Scheme scheme;
  scheme.group_size = 128;
  CHECK(SchemeName(scheme) == "w4a16");
  CHECK(DescribeScheme(scheme) == "w4a16 group 128 symmetric");
  scheme.symmetric = false;
  CHECK(DescribeScheme(scheme) == "w4a16 group 128 asymmetric");
  scheme.granularity = Granularity::kChannel;
  CHECK(DescribeScheme(scheme) == "w4a16 channel asymmetric");
}

TEST_CASE("the name tells weights and activations apart") {
  Scheme scheme{.code = CodeType::kS8,
                .bits = 8,
                .granularity = Granularity::kChannel,
                .group_size = 64,
                .activations = {.type = ActivationType::kInt, .bits = 8}};
  CHECK(DescribeScheme(scheme) == "w8a8 channel symmetric");
  CHECK(DescribeActivations(scheme.activations) == "8-bit int per token dynamic");
  scheme.activations = {.type = ActivationType::kFloat,
                        .bits = 8,
                        .dynamic = false,
                        .granularity = ActivationGranularity::kTensor};
  CHECK(SchemeName(scheme) == "w8afp8");
  CHECK(DescribeActivations(scheme.activations) == "8-bit float per tensor static");
  scheme.code = CodeType::kF8E4M3;
  scheme.granularity = Granularity::kBlock;
  scheme.group_size = 128;
  scheme.scale_rows = 128;
  CHECK(DescribeScheme(scheme) == "wfp8afp8 block 128x128");
  scheme.activations = {};
  CHECK(SchemeName(scheme) == "wfp8a16");
  CHECK(DescribeActivations(scheme.activations) == "none");
}

TEST_CASE("the zero point of a symmetric scheme is the middle code") {
  Scheme scheme;
  CHECK(ZeroOfSymmetric(scheme) == 8);
  scheme.bits = 3;
  CHECK(ZeroOfSymmetric(scheme) == 4);
  scheme.code = CodeType::kU8;
  scheme.bits = 8;
  CHECK(ZeroOfSymmetric(scheme) == 128);
  scheme.code = CodeType::kS8;
  CHECK(ZeroOfSymmetric(scheme) == 0);
  scheme.code = CodeType::kF8E4M3;
  CHECK(ZeroOfSymmetric(scheme) == 0);
}

TEST_CASE("schemes are equal when every field is") {
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
}  // namespace prepack::testing
