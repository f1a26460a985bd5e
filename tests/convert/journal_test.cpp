#include "prepack/convert/resume.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "catch.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

const RunIdentity kIdentity{
    .tool = "1.2.3", .source = "s", .options = "--target \"x\"", .plan = "p"};
const Hash128 kHash = Xxh3("a");
const Hash128 kOther = {.high = 0, .low = 0xAB};  // with leading zeros

std::string TextOf(const std::filesystem::path& path) {
  return Value(ReadTextFile(path, 1 << 20));
}

void Append(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::app) << text;
}

// A journal of two units.
std::filesystem::path WriteSample(const TempFolder& folder) {
  const std::filesystem::path path = folder / "journal";
  Journal journal = Value(Journal::Create(path, kIdentity, {2, 3}));
  RequireOk(journal.Append(7, {.rounded_scales = 5,
                               .outputs = {kHash, kOther},
                               .sources = {{4, kOther}},
                               .details = R"({"a":[1,2.5]})"}));
  RequireOk(journal.Append(0, {.rounded_scales = 0, .outputs = {}, .sources = {}}));
  return path;
}

TEST_CASE("a journal tells what it was told") {
  const TempFolder folder;
  const auto contents = Value(ReadJournal(WriteSample(folder)));
  REQUIRE(contents.has_value());
  CHECK(contents->identity == kIdentity);
  CHECK(contents->part == Part{2, 3});
  REQUIRE(contents->units.size() == 2);
  CHECK(contents->units.at(7).rounded_scales == 5);
  CHECK(contents->units.at(7).outputs == std::vector{kHash, kOther});
  CHECK(contents->units.at(7).sources == std::vector{SourceNote{4, kOther}});
  CHECK(contents->units.at(7).details == R"({"a":[1,2.5]})");
  CHECK(contents->units.at(0).outputs.empty());
  CHECK(contents->units.at(0).details.empty());
  CHECK(contents->bytes == std::filesystem::file_size(folder / "journal"));
}

TEST_CASE("a journal keeps what was measured of a source that goes") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "journal";
  Journal journal = Value(Journal::Create(path, kIdentity, {}));
  const MeasuredNote note{.unit = "module \"a\"", .key = "size a", .value = R"({"size":0.5})"};
  RequireOk(journal.Append({note, note}));
  RequireOk(journal.Append(7, {.rounded_scales = 5, .outputs = {kHash}, .sources = {}}));
  const auto contents = Value(ReadJournal(path));
  REQUIRE(contents.has_value());
  CHECK(contents->units.size() == 1);
  REQUIRE(contents->notes.size() == 2);
  CHECK(contents->notes[1].unit == note.unit);
  CHECK(contents->notes[1].key == note.key);
  CHECK(contents->notes[1].value == note.value);

  Append(path, JournalLine(R"({"measured":"size a","unit":"module a","value":5})"));
  CheckError(ReadJournal(path).status(), ErrorKind::kMalformed, "field \"value\"");
}

TEST_CASE("no journal, or not even its first line, is no earlier run") {
  const TempFolder folder;
  CHECK_FALSE(Value(ReadJournal(folder / "none")).has_value());
  Append(folder / "empty", "");
  CHECK_FALSE(Value(ReadJournal(folder / "empty")).has_value());
  Append(folder / "torn", "{\"prepack\":\"1.2");
  CHECK_FALSE(Value(ReadJournal(folder / "torn")).has_value());
}

TEST_CASE("at every length a journal says what its whole lines say") {
  const TempFolder folder;
  const std::string text = TextOf(WriteSample(folder));
  const size_t first = text.find('\n') + 1;
  const size_t second = text.find('\n', first) + 1;
  for (size_t length = 0; length <= text.size(); ++length) {
    const std::filesystem::path path = folder / std::to_string(length);
    Append(path, text.substr(0, length));
    const auto contents = Value(ReadJournal(path));
    INFO(length);
    REQUIRE(contents.has_value() == (length >= first));
    if (!contents) continue;
    CHECK(contents->units.size() ==
          (length >= second ? 1U : 0U) + (length == text.size() ? 1U : 0U));
  }
}

TEST_CASE("a journal goes on behind its last whole line, and the later line counts") {
  const TempFolder folder;
  const std::filesystem::path path = WriteSample(folder);
  const std::string before = TextOf(path);
  Append(path, "{\"unit\":1,\"rounded_sca");
  const auto found = Value(ReadJournal(path));
  {
    Journal journal = Value(Journal::Continue(path, *found));
    RequireOk(journal.Append(7, {.rounded_scales = 6, .outputs = {kHash}, .sources = {}}));
  }
  CHECK(TextOf(path).substr(0, before.size()) == before);
  const auto contents = Value(ReadJournal(path));
  REQUIRE(contents.has_value());
  CHECK(contents->units.size() == 2);
  CHECK(contents->units.at(7).rounded_scales == 6);
}

TEST_CASE("a damaged journal is an error that says where and what to do") {
  for (
      const std::string line :
      {"{", "[]", "{}", R"({"unit":-1,"rounded_scales":0,"outputs":[],"sources":[]})",
       R"({"unit":1,"rounded_scales":0,"outputs":[1],"sources":[]})",
       R"({"unit":1,"rounded_scales":0,"outputs":{},"sources":[]})",
       R"({"unit":1,"rounded_scales":0,"outputs":[],"sources":["abc"]})",
       R"({"unit":1,"rounded_scales":0,"outputs":["0123456789abcdef0123456789abcdeg"],"sources":[]})",
       R"({"unit":1,"unit":1,"rounded_scales":0,"outputs":[],"sources":[]})"}) {
    INFO(line);
    const TempFolder folder;
    const std::filesystem::path path = WriteSample(folder);
    const auto at = std::filesystem::file_size(path);
    Append(path, JournalLine(line));
    const auto contents = ReadJournal(path);
    CheckError(contents.status(), ErrorKind::kMalformed, fmt::format("journal: byte {}", at));
    CHECK_THAT(contents.status().ToString(), Catch::Contains("without --resume"));
  }
}

TEST_CASE("whichever bit of a journal rotted, it is refused, or ends earlier") {
  const TempFolder folder;
  const std::string text = TextOf(WriteSample(folder));
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    std::ofstream(folder / "damaged", std::ios::trunc) << damaged;
    const auto contents = ReadJournal(folder / "damaged");
    INFO("bit " << bit % 8 << " of byte " << bit / 8);
    if (bit / 8 + 1 == text.size()) {  // the last line lost its end
      REQUIRE(Value(contents)->units.size() == 1);
    } else {
      CheckError(contents.status(), ErrorKind::kMalformed, "the line is not what was written");
    }
  }
}

// The identity with one field changed.
RunIdentity Changed(std::string RunIdentity::*field, std::string value) {
  RunIdentity identity = kIdentity;
  identity.*field = std::move(value);
  return identity;
}

TEST_CASE("an earlier run of something else is refused by name") {
  const TempFolder folder;
  const std::filesystem::path path = WriteSample(folder);
  const auto check = [&](const RunIdentity& identity, const Part& part, std::string_view text) {
    CheckError(FindEarlierRun(path, identity, part).status(), ErrorKind::kUsage, text);
  };
  CHECK(Value(FindEarlierRun(path, kIdentity, {2, 3})).has_value());
  CHECK_FALSE(Value(FindEarlierRun(folder / "none", kIdentity, {2, 3})).has_value());

  check(Changed(&RunIdentity::tool, "1.2.4"), {2, 3}, "another version of prepack");
  check(Changed(&RunIdentity::source, "t"), {2, 3}, "another source");
  check(Changed(&RunIdentity::options, "--target y"), {2, 3},
        "other options (found --target \"x\", expected --target y)");
  check(Changed(&RunIdentity::plan, "q"), {2, 3}, "a plan that packs other bytes");
  check(kIdentity, {1, 3}, "it belongs to another part (found 2/3, expected 1/3)");
}

}  // namespace
}  // namespace prepack::testing
