#include "formats/module_regex.h"

#include <string>
#include <vector>

#include "base/random.h"
#include "catch.h"

namespace prepack {
namespace {

bool Match(std::string_view pattern, std::string_view text) {
  const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "ignore[0]");
  INFO(pattern << ": " << regex.status().ToString());
  REQUIRE(regex.ok());
  return regex->MatchesStart(text);
}

TEST_CASE("Regular expressions give the answers of re.match") {
  struct Case {
    std::string pattern;
    std::string text;
    bool matches;
  };
  // The answers are those of Python's re.match(pattern, text) is not None.
  const std::vector<Case> cases = {
      {".*q_proj", "model.layers.0.self_attn.q_proj", true},
      {".*q_proj", "model.layers.0.self_attn.q_proj_extra", true},
      {"q_proj", "a.q_proj", false},
      {".*v_proj$", "a.qkv_proj", true},
      {".*v_proj$", "a.qkv_proj.b", false},
      {"", "anything", true},
      {"^model", "model.a", true},
      {"a|b", "b", true},
      {"a|", "c", true},
      {"model\\.layers\\.\\d+\\.mlp", "model.layers.12.mlp.up_proj", true},
      {"model\\.layers\\.\\d+\\.mlp", "model.layers.x.mlp", false},
      {"model.layers.[0-9]+.mlp", "model.layers.3.mlp", true},
      {"model[.]layers", "modelxlayers", false},
      {".*\\.(gate|up)_proj", "m.up_proj", true},
      {".*\\.(?:gate|up)_proj", "m.down_proj", false},
      {"(?P<layer>a)b", "ab", true},
      {"^(?!.*lm_head).*", "model.lm_head", false},
      {"^(?!.*lm_head).*", "model.layers.0", true},
      {"model\\.(?=layers)", "model.layers", true},
      {"model\\.(?=layers)", "model.norm", false},
      {"(?!(?!a))a", "a", true},
      {".*mlp\\.experts\\.\\d+\\.(gate|up|down)_proj$", "l.0.mlp.experts.7.down_proj", true},
      {"a{2}$", "aa", true},
      {"a{2}$", "aaa", false},
      {"a{2,}$", "aaaa", true},
      {"a{,2}$", "aaa", false},
      {"a{1,2}b", "aab", true},
      {"a{x}", "a{x}", true},
      {"a+?b", "aaab", true},
      {"a??b", "b", true},
      {"[^.]+$", "abc", true},
      {"[^.]+$", "a.c", false},
      {"[]a]+$", "]a", true},
      {"[a-]$", "-", true},
      {"[\\w.]+$", "a_1.b", true},
      {"\\Aa\\Z", "a", true},
      {"a$", "a\n", true},
      {"a\\Z", "a\n", false},
      {".", "\n", false},
      {".*\\bproj\\b", "a.proj.b", true},
      {".*\\bproj\\b", "a.q_proj.b", false},
      {".*\\Bproj", "a.qproj", true},
      {"(a*)*b", "aaab", true},
      {"(a|b*)*c", "abbc", true},
      {"(?#a comment)a", "a", true},
      {"\\S+\\s", "a b", true},
      {"\\D\\W", "a.", true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.pattern, c.text);
    CHECK(Match(c.pattern, c.text) == c.matches);
  }
}

TEST_CASE("Patterns that take a backtracking matcher exponential time end at once") {
  const std::string text(500, 'a');
  CHECK_FALSE(Match("(a+)+b", text));
  CHECK_FALSE(Match("(a|a)*b", text));
  CHECK_FALSE(Match("(a?){500}b", text));
  CHECK_FALSE(Match(".*.*.*.*.*.*.*.*b", text));
  CHECK_FALSE(Match("(?=(?=(a|a)*b)a)*b", text));
  CHECK(Match("((((a*)*)*)*)*$", text));
}

TEST_CASE("Patterns that Python would not compile are malformed") {
  for (const std::string pattern : {"(", ")", "a)", "[", "[a", "*a", "a**", "a+*", "{2}", "^*",
                                    "\\", "[b-a]", "a{3,2}", "(?P<x", "(?#x", "\\q", "[\\w-a]"}) {
    const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "ignore[0]");
    CAPTURE(pattern);
    REQUIRE_FALSE(regex.ok());
    CHECK(regex.status().kind() == ErrorKind::kMalformed);
    CHECK(regex.status().where() == "ignore[0]");
    CHECK_THAT(regex.status().what(), Catch::Contains("does not compile"));
  }
}

TEST_CASE("Constructs that cannot be matched in linear time are refused by name") {
  struct Case {
    std::string pattern;
    std::string name;
  };
  const std::vector<Case> cases = {
      {"(?<=a)b", "lookbehind"},
      {"(?<!a)b", "lookbehind"},
      {"(a)\\1", "back-reference"},
      {"(?P<x>a)(?P=x)", "back-reference"},
      {"(?i)a", "flags"},
      {"(?>a)", "atomic"},
      {"(a)?(?(1)b|c)", "conditional"},
      {"a++", "possessive"},
      {"\\x41", "numeric"},
      {"\xC3\xA9", "ASCII"},
      {"a{1001}", "repetitions"},
      {"((a{100}){100}){100}", "repeats too much"},
      {"(((){1000}){1000}){1000}", "repeats too much"},
      {std::string(1025, 'a'), "too long"},
      {std::string(40, '(') + std::string(40, ')'), "nested too deeply"},
  };
  for (const Case& c : cases) {
    const Result<ModuleRegex> regex = ModuleRegex::Compile(c.pattern, "ignore[0]");
    CAPTURE(c.pattern);
    REQUIRE_FALSE(regex.ok());
    CHECK(regex.status().kind() == ErrorKind::kUnsupported);
    CHECK_THAT(regex.status().what(), Catch::Contains(c.name));
  }
}

TEST_CASE("Random patterns end with a regex or an error") {
  constexpr std::string_view kAlphabet = "ab.*+?()|[]{}^$\\d,1-!:=<P";
  SplitMix64 random(1);
  size_t compiled = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string pattern;
    const uint64_t length = random.Below(24);
    for (uint64_t c = 0; c < length; ++c) pattern += kAlphabet[random.Below(kAlphabet.size())];
    const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "ignore[0]");
    if (!regex.ok()) continue;
    ++compiled;
    (void)regex->MatchesStart("ab.ab1");
  }
  CHECK(compiled > 500);
}

}  // namespace
}  // namespace prepack
