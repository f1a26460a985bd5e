#include "prepack/container/json_writer.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "prepack/container/json.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// What a writer makes of the whole document.
std::string Written(const Json& json) {
  std::string text;
  JsonWriter writer([&text](std::string_view piece) { text += piece; });
  writer.Value(json);
  writer.Flush();
  return text;
}

TEST_CASE("entries of a list are written on a line each, in the bytes of dump") {
  const Json entry =
      Json::parse(R"({"a": [1, 2, {}], "b": {"c": "d e", "f": [[], "\n"]}, "g": null})");
  std::string text;
  JsonWriter writer([&text](std::string_view piece) { text += piece; });
  writer.BeginObject();
  writer.Key("list");
  writer.BeginArray();
  for (int i = 0; i < 2; ++i) {
    const JsonWriter::Line line(writer);
    writer.Value(entry);
  }
  writer.EndArray();
  writer.Key("map");
  writer.BeginObject();
  writer.Key("x");
  {
    const JsonWriter::Line line(writer);
    writer.Value(entry);
  }
  writer.MemberNumber("y", 1);
  writer.EndObject();
  writer.EndObject();
  writer.Flush();
  const std::string line = entry.dump();
  CHECK(text == "{\n  \"list\": [\n    " + line + ",\n    " + line +
                    "\n  ],\n  \"map\": {\n    \"x\": " + line + ",\n    \"y\": 1\n  }\n}");
}

TEST_CASE("documents are written in the bytes of dump") {
  const char* const documents[] = {
      "{}",
      "[]",
      "null",
      "-17",
      "\"text\"",
      R"({"a": 1})",
      R"([[], {}, [1], {"a": {}}, {"b": []}])",
      R"({"empty": "", "list": [true, false, null], "deep": {"er": {"still": [[[1, 2], 3]]}}})",
      R"({"numbers": [0, 18446744073709551615, -9223372036854775808, 0.1, 1e300, 4.0, -0.0]})",
      R"({"quotes": "\"\\/\b\f\n\r\t\u0001\u001f", "\"key\\": "é ∞ 😀 \u007f"})",
  };
  for (const char* text : documents) {
    INFO(text);
    const Json json = Json::parse(text);
    CHECK(Written(json) == json.dump(2));
  }
}

TEST_CASE("documents are written piece by piece") {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; });
  json.BeginObject();
  json.MemberText("name", "a \"b\"");
  json.MemberNumber("bytes", UINT64_MAX);
  json.Key("list");
  json.BeginArray();
  json.Text("x");
  json.Number(7);
  json.BeginObject();
  json.EndObject();
  json.Value({{"shape", {2, 3}}});
  json.EndArray();
  json.Member("none", nullptr);
  CHECK(text.empty());  // nothing is handed on before it has to be
  json.EndObject();
  json.Flush();
  const Json expected = {{"name", "a \"b\""},
                         {"bytes", UINT64_MAX},
                         {"list", {"x", 7, Json::object(), {{"shape", {2, 3}}}}},
                         {"none", nullptr}};
  CHECK(text == expected.dump(2));
}

TEST_CASE("long documents are handed on in pieces of bounded size") {
  size_t pieces = 0;
  size_t largest = 0;
  std::string text;
  JsonWriter writer([&](std::string_view piece) {
    ++pieces;
    largest = std::max(largest, piece.size());
    text += piece;
  });
  Json json = Json::array();
  for (int i = 0; i < 20'000; ++i) json.push_back("element " + std::to_string(i));
  writer.Value(json);
  writer.Flush();
  CHECK(text == json.dump(2));
  CHECK(pieces > 4);
  CHECK(largest < 80'000);
}

TEST_CASE("numbers that JSON does not have are null, or as Python has them") {
  const double infinity = std::numeric_limits<double>::infinity();
  const Json json = {{"a", {infinity, -infinity, 0.5}},
                     {"b", std::numeric_limits<double>::quiet_NaN()}};
  CHECK(Written(json) == json.dump(2));
  CHECK(JsonAsWritten(json) == Json::parse(json.dump()));
  const std::string text = PythonJsonText(json);
  CHECK(text == "{\n  \"a\": [\n    Infinity,\n    -Infinity,\n    0.5\n  ],\n  \"b\": NaN\n}\n");
  const JsonLimits python{.python_numbers = true};
  CHECK(PythonJsonText(Value(ParseJsonStrict(text, "f", python))) == text);
}

TEST_CASE("bytes that are no UTF-8 are replaced") {
  const std::string broken = "a\xFFz";
  std::string text;
  JsonWriter writer([&text](std::string_view piece) { text += piece; });
  writer.BeginObject();
  writer.MemberText(broken, broken);
  writer.EndObject();
  writer.Flush();
  CHECK(text == "{\n  \"a\xEF\xBF\xBDz\": \"a\xEF\xBF\xBDz\"\n}");
}

}  // namespace
}  // namespace prepack::testing
