#include "prepack/formats/regex.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"

namespace prepack {
namespace {

bool Match(std::string_view pattern, std::string_view text) {
  const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "ignore[0]");
  INFO(pattern << ": " << regex.status().ToString());
  REQUIRE(regex.ok());
  const Result<bool> matches = regex->MatchesStart(text);
  INFO(matches.status().ToString());
  REQUIRE(matches.ok());
  return *matches;
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
      {"(?<=m)odel", "model", false},
      {"m(?<=m)odel", "model", true},
      {"(a)\\1$", "aa", true},
      {"(?i)MODEL", "model.a", true},
      {"(?P<x>a)(?P=x)b", "aab", true},
      {"(?>a+)b", "aab", true},
      {"\\x41", "A", true},
      {"\\v", "\n", false},
      {"\\v", "\x0b", true},
      {"a{,x}", "a{,x}", true},
      {"a[{,2}]", "a,", true},
      {"a{,}$", "aaa", true},
      {"a{ 1}", "a{ 1}", true},
      {"[.a.]+$", "a.", true},
      {"[^=a=]", "=", false},
      {"\\141\\060", "a0", true},
      {"[\\141]", "a", true},
      {"(a)(?:\\1)1", "aa1", true},
      {"\\w$", "\u00e9", true},
      {"[^a]$", "\u00e9", true},
      {"\\W", "\u00e9", false},
      {"(?i)(?s)A.$", "a\n", true},
      {"(?i-s:A)$", "a", true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.pattern, c.text);
    CHECK(Match(c.pattern, c.text) == c.matches);
  }
}

TEST_CASE("A search may begin anywhere") {
  const Result<ModuleRegex> regex = ModuleRegex::Compile("layers\\.1\\.", "extra_config");
  REQUIRE(regex.ok());
  CHECK(*regex->Search("model.layers.1.mlp"));
  CHECK_FALSE(*regex->Search("model.layers.11.mlp"));
  CHECK_FALSE(*regex->MatchesStart("model.layers.1.mlp"));
}

TEST_CASE("A pattern that takes exponential time is an error, and no answer") {
  const std::string text(400, 'a');
  for (const std::string pattern : {"(a+)+$", "(a|a)*$", "(a|aa)+$", "((a?){20}){20}$"}) {
    CAPTURE(pattern);
    const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "targets[3]");
    REQUIRE(regex.ok());
    const Result<bool> matches = regex->MatchesStart(text + "!");
    REQUIRE_FALSE(matches.ok());
    CHECK(matches.status().kind() == ErrorKind::kUnsupported);
    CHECK(matches.status().id() == "config-pattern-slow");
    CHECK(matches.status().where() == "targets[3]");
  }
  // Slow to backtrack, but far below the limit.
  CHECK_FALSE(Match(".*.*b", text));
}

TEST_CASE("All patterns of a model together have a budget") {
  const auto compile = [](std::string_view pattern) {
    Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "ignore[7]");
    REQUIRE(regex.ok());
    return *std::move(regex);
  };
  const ModuleRegex free = compile(".*b");
  std::optional<RegexBudget> budget(std::in_place, 20);
  const ModuleRegex first = compile(".*a");
  const ModuleRegex second = compile(".*b");
  budget.reset();  // they keep it
  const ModuleRegex later = compile(".*b");
  for (int i = 0; i < 10; ++i) {
    CHECK(first.MatchesStart("aaa").ok());
    CHECK(second.MatchesStart("aaa").ok());
  }
  const Status spent = first.MatchesStart("aaa").status();
  REQUIRE_FALSE(spent.ok());
  CHECK(spent.kind() == ErrorKind::kUnsupported);
  CHECK(spent.id() == "config-pattern-slow");
  CHECK(spent.ToString() ==
        "ignore[7]: all patterns together take too long to match. Use fewer or simpler patterns: "
        "prepack tries each of them on every module");
  CHECK_FALSE(second.MatchesStart("aaa").ok());
  CHECK(free.MatchesStart("aaa").ok());
  CHECK(later.MatchesStart("aaa").ok());
}

TEST_CASE("A slow match costs as much as many") {
  const RegexBudget budget(1000);
  const Result<ModuleRegex> slow = ModuleRegex::Compile("(a|a)*$", "ignore[7]");
  REQUIRE(slow.ok());
  std::string text(401, 'a');
  text.back() = '!';
  CHECK(slow->MatchesStart(text).status().what() == "the pattern takes too long to match");
  CHECK(slow->MatchesStart(text).status().what() == "the pattern takes too long to match");
  CHECK(slow->MatchesStart(text).status().what() == "all patterns together take too long to match");
}

TEST_CASE("Patterns that Python would not compile are malformed") {
  for (const std::string pattern : {"(",
                                    ")",
                                    "a)",
                                    "[",
                                    "[a",
                                    "*a",
                                    "a**",
                                    "{2}a(",
                                    "\\",
                                    "[b-a]",
                                    "a{3,2}",
                                    "(?P<x",
                                    "(?#x",
                                    "\\q",
                                    "\\K",
                                    "\\h",
                                    "\\Qa\\E",
                                    "(?<n>a)",
                                    "(?'n'a)",
                                    "(?|a|b)",
                                    "(?R)",
                                    "(?&n)",
                                    "(*ACCEPT)",
                                    "(?",
                                    "a{2}{3}",
                                    "a{2}*",
                                    "^*",
                                    "\\b+",
                                    "*",
                                    "a|*",
                                    "\\x6",
                                    "\\x{61}",
                                    "\\10",
                                    "(a\\1)",
                                    "\\1(a)",
                                    "[\\8]",
                                    "\\777",
                                    "(?-:a)",
                                    "(?i-:a)",
                                    "(?i-i:a)",
                                    "a(?i)",
                                    "((?i)a)",
                                    "(?-i)a",
                                    "(?P=n)(?P<n>a)",
                                    "(?P<n>(?P=n))"}) {
    const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "ignore[0]");
    CAPTURE(pattern);
    REQUIRE_FALSE(regex.ok());
    CHECK(regex.status().kind() == ErrorKind::kMalformed);
    CHECK(regex.status().id() == "config-pattern-invalid");
    CHECK(regex.status().where() == "ignore[0]");
    CHECK_THAT(regex.status().what(), Catch::Contains("does not compile"));
  }
}

TEST_CASE("What the two engines read differently, or is out of bounds, is refused") {
  for (const std::string& pattern :
       {std::string("(?a)b"), std::string("\\N{DASH}"), std::string("\\u0041"),
        std::string("[[:alpha:]]"), std::string("a{1,99999}"),
        std::string("a{99999999999999999999}"), std::string("(?x) a"), std::string("(a)?(?(1)b|c)"),
        "(?P<" + std::string(40, 'n') + ">a)", std::string("(?<=a*)b"), std::string(4097, 'a')}) {
    const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "ignore[0]");
    CAPTURE(pattern);
    REQUIRE_FALSE(regex.ok());
    CHECK(regex.status().kind() == ErrorKind::kUnsupported);
  }
  std::string deep(100, '(');
  deep += "a";
  deep += std::string(100, ')');
  CHECK_FALSE(ModuleRegex::Compile(deep, "ignore[0]").ok());
}

TEST_CASE("Bytes that are no UTF-8 are an error, never a match behind them") {
  const Result<ModuleRegex> regex = ModuleRegex::Compile("_", "ignore[0]");
  REQUIRE(regex.ok());
  for (const std::string text : {"1\xf6_", "\xff", "_\xe8"}) {
    CAPTURE(text);
    for (const Result<bool>& found : {regex->MatchesStart(text), regex->Search(text)}) {
      REQUIRE_FALSE(found.ok());
      CHECK(found.status().kind() == ErrorKind::kMalformed);
    }
  }
  CHECK_FALSE(ModuleRegex::Compile("\xff", "ignore[0]").ok());
}

TEST_CASE("Random patterns end with an answer or an error") {
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
