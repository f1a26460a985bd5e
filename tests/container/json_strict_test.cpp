#include "prepack/container/json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "catch.h"
#include "status_matchers.h"

namespace prepack {
namespace {

using testing::CheckError;
using testing::Value;

TEST_CASE("JSON of every kind is read") {
  const Json json = Value(ParseJsonStrict(
      R"( {"b": [1, -2, 2.5, true, false, null, {}, []], "a": {"z": "\u00e9\n", "": ""}} )", "f"));
  CHECK(json.dump() == R"({"b":[1,-2,2.5,true,false,null,{},[]],"a":{"z":"é\n","":""}})");
  CHECK(json["b"][0].is_number_unsigned());
  CHECK(json["b"][1].is_number_integer());
  CHECK(json["b"][2].is_number_float());
  CHECK(Value(ParseJsonStrict("7", "f")) == Json(7));
  CHECK(Value(ParseJsonStrict("\"x\"", "f")) == Json("x"));
}

TEST_CASE("keys keep the order of the file") {
  const Json json = Value(ParseJsonStrict(R"({"z":1,"a":2,"m":3})", "f"));
  std::string keys;
  for (const auto& [key, value] : json.items()) keys += key;
  CHECK(keys == "zam");
}

TEST_CASE("the same key in different objects is no duplicate") {
  CHECK(ParseJsonStrict(R"({"a":{"a":[{"a":1},{"a":2}]},"b":{"a":3}})", "f").ok());
}

struct JsonDefect {
  const char* text;
  const char* error;
};

TEST_CASE("defects of JSON are told with file and byte") {
  const JsonDefect defect = GENERATE(values<JsonDefect>({
      {R"({"a":1,"a":1})", "c.json: byte 10: duplicate key \"a\""},
      {R"({"a":1,"b":{"c":1,"d":2,"c":3},"a":1})", "c.json: byte 27: duplicate key \"c\""},
      {R"({"a":1,"\u0061":2})", "byte 15: duplicate key \"a\""},
      {R"({"a":1,"b":1,"b":1,"a":1})", "byte 22: duplicate key \"a\""},
      {R"({} x)", "c.json: byte 4: syntax error while parsing value - invalid literal"},
      {R"({}{})", "c.json: byte 3: syntax error"},
      {"", "c.json: byte 0: syntax error"},
      {"   ", "c.json: byte 3: syntax error"},
      {R"({"a":1)", "c.json: byte 6: syntax error"},
      {R"({"a")", "c.json: byte 4: syntax error"},
      {R"({"a":"b)", "missing closing quote"},
      {R"({"a":1,})", "c.json: byte 8: syntax error"},
      {R"([1,])", "syntax error"},
      {R"({'a':1})", "syntax error"},
      {R"({a:1})", "syntax error"},
      {R"({"a":NaN})", "syntax error"},
      {R"({"a":Infinity})", "syntax error"},
      {R"({"a":-Infinity})", "syntax error"},
      {R"({"a":1e999})", "number overflow parsing '1e999'"},
      {R"({"a":-1e999})", "number overflow parsing '-1e999'"},
      {R"({"a":01})", "syntax error"},
      {R"({"a":+1})", "syntax error"},
      {R"({"a":.5})", "syntax error"},
      {R"({"a":0x10})", "syntax error"},
      {"{\"a\":\"\xFF\"}", "ill-formed UTF-8 byte"},
      {"{\"a\":\"\xC0\xAF\"}", "ill-formed UTF-8 byte"},
      {"{\"a\":\"\xED\xA0\x80\"}", "ill-formed UTF-8 byte"},
      {R"({"a":"\ud800"})", "surrogate"},
      {R"({"a":"\x41"})", "forbidden character after backslash"},
      {"{\"a\":\"tab\there\"}", "control character"},
      {"\xEF\xBB\xBF{}", "c.json: byte 0: a byte order mark"},
      {"/* no */ {}", "syntax error"},
      {"{} // no", "syntax error"},
  }));
  INFO(defect.text);
  CheckError(ParseJsonStrict(defect.text, "c.json").status(), ErrorKind::kMalformed, defect.error);
}

TEST_CASE("NUL does not end the text") {
  using namespace std::string_view_literals;
  CheckError(ParseJsonStrict("{}\0{\"hidden\":1}"sv, "f").status(), ErrorKind::kMalformed,
             "f: byte 2: NUL in JSON text");
  CheckError(ParseJsonStrict("{\"a\":\"\0\"}"sv, "f").status(), ErrorKind::kMalformed,
             "f: byte 6: NUL in JSON text");
  CHECK(Value(ParseJsonStrict(R"(["\u0000"])", "f"))[0] == std::string(1, '\0'));
}

TEST_CASE("depth is limited, and costs no stack") {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  CHECK(ParseJsonStrict(nested(32), "f").ok());
  CheckError(ParseJsonStrict(nested(33), "f").status(), ErrorKind::kMalformed,
             "f: byte 33: nested more than 32 levels deep");
  CheckError(ParseJsonStrict(std::string(5'000'000, '['), "f").status(), ErrorKind::kMalformed,
             "nested more than 32 levels deep");
  JsonLimits limits;
  limits.max_depth = 2'000'000;
  CHECK(ParseJsonStrict(nested(1'000'000), "f", limits).ok());
  limits.max_depth = 0;
  CHECK(ParseJsonStrict("1", "f", limits).ok());
  CHECK_FALSE(ParseJsonStrict("[]", "f", limits).ok());
}

TEST_CASE("numbers that only Python writes are read on request") {
  const std::string text =
      R"({"a": NaN, "b": [Infinity,-Infinity ,0, NaN], "NaN": "-Infinity \" NaN", "c": 0.0})";
  CheckError(ParseJsonStrict(text, "f").status(), ErrorKind::kMalformed, "f: byte 7: ");
  const JsonLimits python{.python_numbers = true};
  const Json json = Value(ParseJsonStrict(text, "f", python));
  CHECK(std::isnan(json["a"].get<double>()));
  CHECK(json["b"][0] == std::numeric_limits<double>::infinity());
  CHECK(json["b"][1] == -std::numeric_limits<double>::infinity());
  CHECK(json["b"][2].is_number_unsigned());
  CHECK(std::isnan(json["b"][3].get<double>()));
  CHECK(json["NaN"] == "-Infinity \" NaN");
  CHECK(json["c"] == 0.0);
  CHECK(std::isnan(Value(ParseJsonStrict("NaN", "f", python)).get<double>()));
  CHECK(Value(ParseJsonStrict("0", "f", python)) == 0);
  // What Python does not read either.
  for (const char* broken :
       {"[1NaN]", "[-NaN]", "[+Infinity]", "[NaN1]", "[NaNNaN]", "[nan]", "[Inf]", "{NaN: 1}",
        "NaN NaN", "[--Infinity]", "[Infinity.5]", "\"NaN"}) {
    INFO(broken);
    CheckError(ParseJsonStrict(broken, "f", python).status(), ErrorKind::kMalformed, "f: byte ");
  }
  // What follows keeps its place.
  CheckError(ParseJsonStrict(R"({"a": -Infinity, "a": 1})", "f", python).status(),
             ErrorKind::kMalformed, "f: byte 20: duplicate key \"a\"");
}

TEST_CASE("the number of values is limited") {
  JsonLimits limits;
  limits.max_values = 4;
  CHECK(ParseJsonStrict(R"({"a":[1,2]})", "f", limits).ok());
  CheckError(ParseJsonStrict(R"({"a":[1,2,3]})", "f", limits).status(), ErrorKind::kMalformed,
             "f: byte 12: too many values");
  CheckError(ParseJsonStrict(R"([[],[],[],[],[]])", "f", limits).status(), ErrorKind::kMalformed,
             "too many values");
}

// With a search through all keys for each new one this would take hours.
TEST_CASE("an object of many keys is read in passing") {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += "\"k" + std::to_string(i) + "\":1,";
  const Json json = Value(ParseJsonStrict(text + "\"last\":2}", "f"));
  CHECK(json.size() == 300'001);
  CheckError(ParseJsonStrict(text + "\"k0\":2}", "f").status(), ErrorKind::kMalformed,
             "duplicate key \"k0\"");
}

TEST_CASE("what is quoted from a hostile file is harmless and short") {
  const Status status = ParseJsonStrict("{\"\\u001b[31m" + std::string(100'000, 'x') + "\":1," +
                                            "\"\\u001b[31m" + std::string(100'000, 'x') + "\":1}",
                                        "f")
                            .status();
  CheckError(status, ErrorKind::kMalformed, "duplicate key \"\\x1b[31mxxx");
  CHECK(status.ToString().size() < 500);
  CHECK(ParseJsonStrict("\"" + std::string(100'000, 'x'), "f").status().ToString().size() < 500);
}

}  // namespace
}  // namespace prepack
