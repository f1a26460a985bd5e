// Hand-made defects of a safetensors header, in the order in which the reader meets them. Each is
// one replacement in a header that must pass.

#include <string>

#include "catch.h"
#include "prepack/container/safetensors.h"
#include "status_matchers.h"

namespace prepack {
namespace {

constexpr uint64_t kDataBytes = 21;
const std::string& GoodHeader() {
  static const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"I8","shape":[3],"data_offsets":[16,19]},)"
      R"("e":{"dtype":"F16","shape":[0,4],"data_offsets":[19,19]},)"
      R"("s":{"dtype":"BF16","shape":[],"data_offsets":[19,21],"note":"x"}}  )";
  return header;
}

struct HeaderDefect {
  std::string from;
  std::string to;
  std::string error;
};

Result<SafetensorsHeader> ParseWith(const HeaderDefect& defect) {
  std::string json = GoodHeader();
  const size_t at = json.find(defect.from);
  REQUIRE(at != std::string::npos);
  REQUIRE(json.find(defect.from, at + 1) == std::string::npos);
  json.replace(at, defect.from.size(), defect.to);
  return ParseSafetensorsHeader(json, kDataBytes, "m.safetensors");
}

TEST_CASE("the header that all defects are made from is good") {
  const SafetensorsHeader header =
      testing::Value(ParseSafetensorsHeader(GoodHeader(), kDataBytes, "m.safetensors"));
  CHECK(header.tensors.size() == 4);
}

TEST_CASE("replacements that are no defects pass") {
  CHECK(ParseWith({R"("format":"pt")", "", ""}).ok());
  CHECK(ParseWith({R"("a":)", R"("A":)", ""}).ok());
  CHECK(ParseWith({R"("note":"x")", R"("note":[{"a":[]}])", ""}).status().ToString() ==
        "m.safetensors: header: byte 267: nested more than 4 levels deep");
  CHECK(ParseWith({R"("note":"x")", R"("note":[{"a":1}])", ""}).ok());
  CHECK(ParseWith({"}}  ", "}}", ""}).ok());
}

const std::string kLongName(kMaxTensorNameBytes + 1, 'n');

const HeaderDefect kDefects[] = {
    // JSON
    {R"({"__meta)", R"(["__meta)",
     "m.safetensors: header: the header is not a JSON object (found [\"__metadata__\":, expected "
     "{). Is it a safetensors file?"},
    {R"({"__meta)", R"(x{"__meta)", "the header is not a JSON object"},
    {R"({"__meta)", "\xEF\xBB\xBF{\"__meta", "the header is not a JSON object"},
    {"}}  ", "}  ", "m.safetensors: header: byte 266: syntax error"},
    {"}}  ", "}} x", "m.safetensors: header: byte 267: syntax error"},
    {"}}  ", "}}{}", "syntax error"},
    {"}}  ", "},}", "syntax error"},
    {"}}  ", std::string("}}\0\0", 4), "byte 265: NUL in JSON text"},
    {R"("b":{)", R"("b"{)", "syntax error"},
    {R"("b":{)", R"(b:{)", "syntax error"},
    {R"("pt")", "\"\xFF\"", "ill-formed UTF-8 byte"},
    {R"("b":{)", "\"\xC3\x28\":{", "ill-formed UTF-8 byte"},
    {R"("note":"x")", R"("note":[[[1]]])", "nested more than 4 levels deep"},

    // __metadata__
    {R"({"format":"pt"})", R"("pt")",
     "m.safetensors: __metadata__: wrong type of value (found a string, expected an object)"},
    {R"({"format":"pt"})", R"(["pt"])",
     "__metadata__: wrong type of value (found an array, expected an object)"},
    {R"({"format":"pt"})", "null", "__metadata__: wrong type of value (found null"},
    {R"("format":"pt")", R"("format":1)",
     "m.safetensors: __metadata__: format: wrong type of value (found a number, expected a "
     "string)"},
    {R"("format":"pt")", R"("format":{"a":"b"})",
     "__metadata__: format: wrong type of value (found an object, expected a string)"},
    {R"("format":"pt")", R"("format":["pt"])",
     "__metadata__: format: wrong type of value (found an array"},
    {R"("format":"pt")", R"("format":true)",
     "__metadata__: format: wrong type of value (found true, expected a string)"},
    {R"("format":"pt")", R"("format":"pt","format":"pt")",
     "m.safetensors: __metadata__: format: duplicate key (found format)"},
    {R"("a":)", R"("__metadata__":{},"a":)",
     "m.safetensors: __metadata__: duplicate key (found __metadata__)"},

    // Entries
    {R"({"dtype":"I8","shape":[3],"data_offsets":[16,19]})", "3",
     "m.safetensors: tensor b: wrong type of value (found a number, expected an object)"},
    {R"({"dtype":"I8","shape":[3],"data_offsets":[16,19]})", R"(["I8",[3],[16,19]])",
     "tensor b: wrong type of value (found an array, expected an object)"},
    {R"({"dtype":"I8","shape":[3],"data_offsets":[16,19]})", "{}",
     "m.safetensors: tensor b: the field dtype is missing"},
    {R"("dtype":"I8",)", "", "m.safetensors: tensor b: the field dtype is missing"},
    {R"("shape":[3],)", "", "m.safetensors: tensor b: the field shape is missing"},
    {R"(,"data_offsets":[16,19])", "",
     "m.safetensors: tensor b: the field data_offsets is missing"},
    {R"("dtype":"I8")", R"("Dtype":"I8")", "tensor b: the field dtype is missing"},
    {R"("dtype":"I8")", R"("dtype":"I8","dtype":"I8")",
     "m.safetensors: tensor b: duplicate field (found dtype)"},
    {R"("shape":[3])", R"("shape":[3],"shape":[3])", "tensor b: duplicate field (found shape)"},
    {R"("data_offsets":[16,19])", R"("data_offsets":[16,19],"data_offsets":[16,19])",
     "tensor b: duplicate field (found data_offsets)"},
    {R"("note":"x")", R"("note":"x","note":"x")", "tensor s: duplicate field (found note)"},
    {R"("note":"x")", R"("note":{"n":1,"n":2})", "tensor s: duplicate field (found n)"},

    // Names
    {R"("b":)", R"("a":)", "m.safetensors: tensor a: the header has this name twice"},
    {R"("b":)", R"("\u0061":)", "m.safetensors: tensor a: the header has this name twice"},
    {R"("b":)", R"("b\u0000":)",
     "m.safetensors: tensor b\\x00: the name contains a control character"},
    {R"("b":)", R"("b\n":)", "tensor b\\x0a: the name contains a control character"},
    {R"("b":)", R"("b\u007f":)", "tensor b\\x7f: the name contains a control character"},
    {R"("b":)",
     '"' + kLongName + "\":", "the name is too long (found 4097 bytes, expected at most 4096)"},

    // dtype
    {R"("I8")", R"("I7")",
     "m.safetensors: tensor b: dtype: unknown dtype (found I7, expected one of BOOL, F4, F6_E2M3"},
    {R"("I8")", R"("i8")", "tensor b: dtype: unknown dtype (found i8"},
    {R"("I8")", R"("")", "tensor b: dtype: unknown dtype"},
    {R"("I8")", "8", "tensor b: dtype: wrong type of value (found a number, expected a string)"},
    {R"("I8")", "null", "tensor b: dtype: wrong type of value (found null, expected a string)"},
    {R"("I8")", R"(["I8"])", "tensor b: dtype: wrong type of value (found an array"},

    // shape
    {"[3]", "3",
     "m.safetensors: tensor b: shape: wrong type of value (found a number, expected an array of "
     "integers)"},
    {"[3]", "\"3\"", "tensor b: shape: wrong type of value (found a string"},
    {"[3]", "{}", "tensor b: shape: wrong type of value (found an object"},
    {"[3]", "[\"3\"]",
     "tensor b: shape: wrong type of value (found a string, expected an integer)"},
    {"[3]", "[[3]]", "tensor b: shape: wrong type of value (found an array, expected an integer)"},
    {"[3]", "[null]", "tensor b: shape: wrong type of value (found null"},
    {"[3]", "[true]", "tensor b: shape: wrong type of value (found true"},
    {"[3]", "[-3]",
     "m.safetensors: tensor b: shape: not a valid size (found -3, expected an "
     "integer from 0 to 18446744073709551615)"},
    {"[3]", "[-0]", "tensor b: shape: not a valid size (found -0"},
    {"[3]", "[3.0]", "tensor b: shape: not a valid size (found 3.0"},
    {"[3]", "[3e0]", "tensor b: shape: not a valid size (found 3e0"},
    {"[3]", "[18446744073709551616]",
     "tensor b: shape: not a valid size (found 18446744073709551616"},
    {"[3]", "[1,1,1,1,1,1,1,1,3]",
     "m.safetensors: tensor b: shape: too many dimensions (expected at most 8)"},
    {"[3]", "[4294967296,4294967296]",
     "m.safetensors: tensor b: shape: the size overflows 64 bits (found I8 [4294967296, "
     "4294967296])"},
    {"[3]", "[4294967296,4294967296,0]", "tensor b: shape: the size overflows 64 bits"},
    {"[0,4]", "[1152921504606846976,1]", "tensor e: shape: the size overflows 64 bits"},
    // The product wraps to 3: what readers without the check take for a sound size.
    {"[3]", "[12297829382473034411,9]", "tensor b: shape: the size overflows 64 bits"},
    {R"("I8")", R"("F4")",
     "m.safetensors: tensor b: shape: the last element does not end on a byte (found F4 [3], which "
     "is 12 bits, expected a multiple of 8 bits)"},
    {R"("I8")", R"("F6_E3M2")",
     "the last element does not end on a byte (found F6_E3M2 [3], which is 18 bits"},

    // data_offsets
    {"[16,19]", "16",
     "tensor b: data_offsets: wrong type of value (found a number, expected an array of integers)"},
    {"[16,19]", "[]",
     "tensor b: data_offsets: fewer than two numbers (found 0, expected start and end)"},
    {"[16,19]", "[16]", "tensor b: data_offsets: fewer than two numbers (found 1"},
    {"[16,19]", "[16,19,19]", "tensor b: data_offsets: more than two numbers"},
    {"[16,19]", "[-16,19]", "tensor b: data_offsets: not a valid size (found -16"},
    {"[16,19]", "[16.0,19]", "tensor b: data_offsets: not a valid size (found 16.0"},
    {"[16,19]", "[16,1e300]", "data_offsets: not a valid size (found 1e300"},
    {"[16,19]", "[16,1e999]", "number overflow parsing '1e999'"},
    {"[16,19]", "[16,\"19\"]", "tensor b: data_offsets: wrong type of value (found a string"},
    {"[16,19]", "[19,16]",
     "m.safetensors: tensor b: data_offsets: the end is before the start (found [19, 16])"},
    {"[19,21]", "[19,22]",
     "m.safetensors: 1 byte missing at the end of the file (found 21 bytes of data, expected 22). "
     "Is the download complete?"},
    {"[16,19]", "[16,18446744073709551615]",
     "m.safetensors: 18446744073709551594 bytes missing at the end of the file"},
    {"[16,19]", "[16,20]",
     "m.safetensors: tensor b: data_offsets: the size does not match dtype and shape (found 4 "
     "bytes "
     "in [16, 20], expected 3 bytes for I8 [3])"},
    {"[16,19]", "[16,16]",
     "tensor b: data_offsets: the size does not match dtype and shape (found 0 bytes in [16, 16], "
     "expected 3 bytes"},
    {"[19,19]", "[18,19]",
     "tensor e: data_offsets: the size does not match dtype and shape (found 1 byte in [18, 19], "
     "expected 0 bytes for F16 [0, 4])"},
    {"[2,2]", "[2,3]",
     "tensor a: data_offsets: the size does not match dtype and shape (found 16 bytes in [0, 16], "
     "expected 24 bytes"},

    // Ranges
    {"[16,19]", "[17,20]",
     "m.safetensors: tensor b: data_offsets: a gap of 1 byte before it (found [17, 20], expected a "
     "start at 16)"},
    {"[16,19]", "[15,18]",
     "m.safetensors: tensor b: data_offsets: overlaps tensor a (found [15, 18], expected a start "
     "at 16)"},
    {"[16,19]", "[0,3]",
     "m.safetensors: tensor a: data_offsets: overlaps tensor b (found [0, 16], expected a start at "
     "3)"},
    {"[19,19]", "[8,8]", "tensor e: data_offsets: overlaps tensor a"},
    {R"("b":{"dtype":"I8","shape":[3],"data_offsets":[16,19]},)", "",
     "m.safetensors: tensor e: data_offsets: a gap of 3 bytes before it (found [19, 19], expected "
     "a start at 16)"},
    {R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)", "",
     "tensor b: data_offsets: a gap of 16 bytes before it (found [16, 19], expected a start at "
     "0)"},
    {R"(,"s":{"dtype":"BF16","shape":[],"data_offsets":[19,21],"note":"x"})", "",
     "m.safetensors: 2 bytes after the last tensor (found 21 bytes of data, expected 19). The file "
     "is damaged, or something was appended to it"},
};

TEST_CASE("each defect of a header is refused with its reason") {
  for (const HeaderDefect& defect : kDefects) {
    INFO("'" << defect.from << "' replaced by '" << Printable(defect.to) << "'");
    testing::CheckError(ParseWith(defect).status(), ErrorKind::kMalformed, defect.error);
  }
}

}  // namespace
}  // namespace prepack
