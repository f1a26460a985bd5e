
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

TEST_CASE("absent and null fields have no value") {
  const Json object = {{"null", nullptr}, {"flag", true}, {"text", "a"}, {"number", -3}};
  for (const char* key : {"absent", "null"}) {
    CHECK(JsonMember(object, key) == nullptr);
    CHECK_FALSE(Value(OptionalBool(object, key, "w")));
    CHECK_FALSE(Value(OptionalInt(object, key, "w")));
    CHECK_FALSE(Value(OptionalString(object, key, "w")));
    CHECK(Value(OptionalStrings(object, {key}, "w")).empty());
  }
  CHECK(Value(OptionalBool(object, "flag", "w")) == true);
  CHECK(Value(OptionalInt(object, "number", "w")) == -3);
  CHECK(Value(OptionalString(object, "text", "w")) == "a");
  CHECK(JsonMember(Json(3), "a") == nullptr);
  const Json lists = {{"a", {"x", "y"}}, {"b", {"z"}}, {"c", Json::array()}};
  CHECK(Value(OptionalStrings(lists, {"b", "c", "d", "a"}, "w")) ==
        std::vector<std::string>{"z", "x", "y"});
}

TEST_CASE("values are the same whatever the order of their members") {
  const Json value = {{"a", {{"x", 1}, {"y", {2, 3}}}}, {"b", nullptr}};
  CHECK(SameJson(value, {{"b", nullptr}, {"a", {{"y", {2, 3}}, {"x", 1}}}}));
  CHECK_FALSE(SameJson(value, {{"b", nullptr}, {"a", {{"y", {3, 2}}, {"x", 1}}}}));
  CHECK_FALSE(SameJson(value, {{"a", value["a"]}}));
  CHECK_FALSE(SameJson(value, {{"a", value["a"]}, {"c", nullptr}}));
}

TEST_CASE("fields of the wrong type name the field and the value") {
  const Json object = {{"a", "yes"}, {"b", 1.5}, {"c", {1, 2}}, {"d", 18446744073709551615ULL}};
  const ErrorKind malformed = ErrorKind::kMalformed;
  CheckError(OptionalBool(object, "a", "w").status(), malformed,
             "w.a: the field has the wrong type (found \"yes\", expected true or false)");
  CheckError(OptionalInt(object, "b", "w").status(), malformed, "(found 1.5, expected an integer)");
  CheckError(OptionalString(object, "c", "w").status(), malformed,
             "(found a list of 2 values, expected a string)");
  CheckError(OptionalInt(object, "d", "w").status(), malformed, "found 18446744073709551615");
  CheckError(RequireObject(object["c"], "w"), malformed, "expected an object");
  CheckError(OptionalStrings(object, {"e", "a"}, "w").status(), malformed,
             "w.a: the field has the wrong type (found \"yes\", expected a list of strings)");
  CheckError(
      OptionalStrings(object, {"c"}, "w", "a list of names").status(), malformed,
      "w.c: the field has the wrong type (found a list of 2 values, expected a list of names)");
}

TEST_CASE("unknown keys are refused") {
  constexpr std::array<std::string_view, 2> kKnown = {"a", "b"};
  RequireOk(RefuseUnknownKeys({{"b", 1}}, kKnown, "w"));
  CheckError(RefuseUnknownKeys({{"a", 1}, {"c", 1}}, kKnown, "w"), ErrorKind::kUnsupported,
             "w: unknown key \"c\" (expected only a, b)");
}

TEST_CASE("values are shown short and in one line") {
  CHECK(ShowJson("a\nb") == "\"a\\nb\"");
  CHECK(ShowJson(std::string(500, 'x')).size() < 100);
  CHECK(ShowJson(Json::object()) == "an object of 0 members");
  CHECK(ShowJson("\xFF").find('\xFF') == std::string::npos);
  CHECK(LowerCase("W4A16_Asym") == "w4a16_asym");
}

}  // namespace
}  // namespace prepack::testing
