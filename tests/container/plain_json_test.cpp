#include "prepack/container/plain_json.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "prepack/container/safetensors.h"
#include "prepack/container/shard_index.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TEST_CASE("plain strings and numbers are taken, and nothing else") {
  CHECK(PlainJson(R"( "a.b" )").String() == "a.b");
  CHECK(PlainJson(R"("")").String() == "");
  for (const std::string_view text :
       {"a", "\"a", R"("a\n")", "\"a\nb\"", "\"\x7F\"", "\"\xC3\xA9\"", ""}) {
    CAPTURE(text);
    CHECK_FALSE(PlainJson(text).String());
  }
  CHECK(PlainJson("0").Number() == 0);
  CHECK(PlainJson("\t9999999999999999999,").Number() == 9'999'999'999'999'999'999U);
  for (const std::string_view text : {"10000000000000000000", "01", "-1", "", "x"}) {
    CAPTURE(text);
    CHECK_FALSE(PlainJson(text).Number());
  }
}

// Texts that differ from this one in a byte.
std::vector<std::string> Changed(const std::string& text) {
  std::vector<std::string> changed;
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char c : std::string_view("\"\\{}[]:, 0a-.\x01\xC3")) {
      changed.push_back(text);
      changed.back()[i] = c;
    }
    changed.push_back(text.substr(0, i) + text.substr(i + 1));
  }
  return changed;
}

bool AreSame(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin &&
         a.end == b.end;
}

// Whether a text is scanned or parsed must not be seen.
TEST_CASE("a header that is scanned is what the parser makes of it") {
  const std::string header =
      R"({"__metadata__":{"a":"b","c":"d"},"x":{"dtype":"U8","shape":[2,3],"data_offsets":[0,6]},)"
      R"( "y" : {"data_offsets":[6,10],"shape":[],"dtype":"F32"}} )";
  RequireOk(ParseSafetensorsHeader(header, 10, "f").status());
  size_t taken = 0;
  for (const std::string& text : Changed(header)) {
    CAPTURE(text);
    SafetensorsSax sax("f");
    const Status status = sax.Run(text, "f: header");
    const SafetensorsHeader expected = sax.TakeHeader();
    const Result<SafetensorsHeader> found = ParseSafetensorsHeader(text, 10, "f");
    if (!status.ok()) {
      REQUIRE_FALSE(found.ok());
      // What is no object has an error of its own.
      if (text[0] == '{') CHECK(found.status().ToString() == status.ToString());
      continue;
    }
    if (!found.ok()) continue;  // its numbers are wrong, whoever reads them
    ++taken;
    CHECK(std::ranges::is_permutation(found->tensors, expected.tensors, AreSame));
    CHECK(found->metadata == expected.metadata);
  }
  CHECK(taken > 100);
}

// What an index is, or why it is none.
std::string TextOf(const Result<ShardIndex>& index) {
  if (!index.ok()) return index.status().ToString();
  std::vector<std::string> lines;
  for (const ShardIndex::Entry& entry : index->entries) {
    lines.push_back(std::string(entry.tensor) + " " + index->shards[entry.shard] + "\n");
  }
  std::ranges::sort(lines);
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

TEST_CASE("an index that is scanned is what the parser makes of it") {
  const TempFolder folder;
  const auto read = [&](const std::string& text) {
    std::filesystem::remove(folder / "i.json");
    RequireOk(WriteTextFile(folder / "i.json", text));
    std::string found = TextOf(ReadShardIndex(folder / "i.json"));
    // Errors may quote the number.
    if (const size_t at = found.find("1.5"); at != std::string::npos) found.replace(at, 3, "115");
    return found;
  };
  const std::string map = R"("weight_map": {"b": "x.safetensors", "a": "y.safetensors"}})";
  REQUIRE(read(R"({"metadata": {"n": 115}, )" + map) == "a y.safetensors\nb x.safetensors\n");
  for (const std::string& text : Changed(map)) {
    CAPTURE(text);
    // No scan takes a fraction.
    CHECK(read(R"({"metadata": {"n": 115}, )" + text) ==
          read(R"({"metadata": {"n": 1.5}, )" + text));
  }
}

}  // namespace
}  // namespace prepack::testing
