#include "prepack/formats/simple_pattern.h"

#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"
#include "prepack/formats/regex.h"

namespace prepack::testing {
namespace {

TEST_CASE("characters with any text between them need no engine") {
  for (const std::string_view pattern :
       {"", "^", "$", ".*lm_head", ".*self_attn.*", ".*mlp.gate$", "model\\.layers\\.0\\..*",
        "^model.norm$", ".*.*", "a-b_c", "..*"}) {
    CAPTURE(pattern);
    CHECK(SimplePattern::Parse(pattern).has_value());
  }
  for (const std::string_view pattern :
       {"a|b", "a*",  "a+",   "ab?",  ".*?a", ".*+", ".+",  ".?", "a{2}", ".{2}", "[ab]",
        "(a)", "\\d", "\\.*", "a\\$", "^^a",  "a$b", "a$$", "é",  "\\",   "a b"}) {
    CAPTURE(pattern);
    CHECK_FALSE(SimplePattern::Parse(pattern).has_value());
  }
}

TEST_CASE("texts with line breaks or other characters are for the engine") {
  const auto simple = SimplePattern::Parse(".*a");
  REQUIRE(simple);
  CHECK(simple->MatchesStart("ba") == true);
  CHECK_FALSE(simple->MatchesStart("b\na").has_value());
  CHECK_FALSE(simple->MatchesStart("é").has_value());
}

std::string RandomText(SplitMix64& random, const std::vector<std::string_view>& elements,
                       size_t most) {
  std::string text;
  for (uint64_t left = random.Next() % (most + 1); left > 0; --left) {
    text += elements[random.Next() % elements.size()];
  }
  return text;
}

TEST_CASE("a simple pattern matches where the engine does") {
  SplitMix64 random(5);
  size_t matched = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string pattern =
        RandomText(random, {"a", "b", ".", "\\.", ".*"}, 6) + (random.Next() % 2 == 0 ? "$" : "");
    const std::string text = RandomText(random, {"a", "b", "."}, 8);
    CAPTURE(pattern, text);
    const auto simple = SimplePattern::Parse(pattern);
    REQUIRE(simple);
    // A search never takes the short way.
    const Result<ModuleRegex> engine = ModuleRegex::Compile("^(?:" + pattern + ")", "test");
    REQUIRE(engine.ok());
    const Result<bool> expected = engine->Search(text);
    REQUIRE(expected.ok());
    REQUIRE(simple->MatchesStart(text) == *expected);
    matched += *expected ? 1 : 0;
  }
  CHECK(matched > 2'000);
  CHECK(matched < 18'000);
}

}  // namespace
}  // namespace prepack::testing
