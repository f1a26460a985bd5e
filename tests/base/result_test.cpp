#include "prepack/base/status.h"

#include <memory>
#include <string>
#include <utility>

#include "catch.h"

namespace prepack::testing {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return Usage("Half", "the number is odd").Found(std::to_string(value));
  return value / 2;
}

TEST_CASE("a Result with a value") {
  const Result<int> result = Half(8);
  REQUIRE(result.ok());
  CHECK(*result == 4);
  CHECK(result.status().ok());
}

TEST_CASE("a Result with an error") {
  Result<int> result = Half(7);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().ToString() == "Half: the number is odd (found 7)");
  const Status status = std::move(result).status();
  CHECK(status.kind() == ErrorKind::kUsage);
}

TEST_CASE("a Result gives access to the value in place") {
  Result<std::string> result = std::string("abc");
  result->push_back('d');
  *result += "e";
  CHECK(*result == "abcde");
  CHECK(std::as_const(result)->size() == 5);
}

TEST_CASE("a Result holds values that can only be moved") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  REQUIRE(result.ok());
  const std::unique_ptr<int> value = *std::move(result);
  CHECK(*value == 5);
}

}  // namespace
}  // namespace prepack::testing
