#include "prepack/formats/module_match.h"

#include <string>
#include <vector>

#include "catch.h"

namespace prepack::testing {
namespace {

ConfigPattern ParsePattern(std::string_view text) {
  Result<ConfigPattern> pattern = ConfigPattern::Parse(text, "ignore[0]");
  INFO(pattern.status().ToString());
  REQUIRE(pattern.ok());
  return *std::move(pattern);
}

TEST_CASE("an entry matches names the way compressed-tensors does") {
  struct Case {
    std::string pattern;
    std::string module;
    bool matches;
  };
  const std::vector<Case> cases = {
      {"re:.*q_proj", "model.layers.0.self_attn.q_proj", true},
      {"re:.*q_proj", "model.layers.0.self_attn.q_proj_extra", true},
      {"re:q_proj", "a.q_proj", false},
      {"re:.*v_proj$", "a.qkv_proj", true},
      {"re:model\\.layers\\.(0|1)\\.", "model.layers.1.mlp", true},
      {"lm_head", "lm_head", true},
      {"lm_head", "LM_HEAD", false},
      {"lm_head", "model.lm_head", false},
      {"model.vision_tower", "model.vision_tower", true},
      {"model.vision_tower", "model.vision_tower.blocks.0.fc1", false},
      {"model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_pro", false},
      {"model.layers.*", "model.layers.0", false},
      {"", "lm_head", false},
  };
  for (const Case& c : cases) {
    CAPTURE(c.pattern, c.module);
    CHECK(*ParsePattern(c.pattern).MatchesName(c.module) == c.matches);
  }
}

TEST_CASE("class names are matched against the class that a module must have had") {
  CHECK(ParsePattern("Linear").MatchesClass(ModuleClass::kLinear));
  CHECK(ParsePattern("LinearBase").MatchesClass(ModuleClass::kLinear));
  CHECK_FALSE(ParsePattern("Linear").MatchesClass(ModuleClass::kEmbedding));
  CHECK(ParsePattern("Embedding").MatchesClass(ModuleClass::kEmbedding));
  CHECK_FALSE(ParsePattern("linear").MatchesClass(ModuleClass::kLinear));
  CHECK_FALSE(ParsePattern("re:Linear").MatchesClass(ModuleClass::kLinear));
  CHECK_FALSE(ParsePattern("LlamaAttention").MatchesClass(ModuleClass::kLinear));

  CHECK(ParsePattern("LlamaAttention").LooksLikeClass());
  CHECK_FALSE(ParsePattern("lm_head").LooksLikeClass());
  CHECK_FALSE(ParsePattern("Model.layers").LooksLikeClass());
  CHECK_FALSE(ParsePattern("re:Linear").LooksLikeClass());

  CHECK(ClassOfModule("model.embed_tokens") == ModuleClass::kEmbedding);
  CHECK(ClassOfModule("transformer.wte") == ModuleClass::kEmbedding);
  CHECK(ClassOfModule("lm_head") == ModuleClass::kLinear);
  CHECK(ClassOfModule("embed_out") == ModuleClass::kLinear);
  CHECK(ClassOfModule("model.embed_tokens.proj") == ModuleClass::kLinear);
}

TEST_CASE("a pattern that does not compile is an error, not an entry without matches") {
  const Result<ConfigPattern> pattern = ConfigPattern::Parse("re:.*(q_proj", "ignore[3]");
  REQUIRE_FALSE(pattern.ok());
  CHECK(pattern.status().ToString() ==
        "ignore[3]: the pattern does not compile (found \".*(q_proj\": missing closing "
        "parenthesis)");
}

TEST_CASE("wildcards match as Python's fnmatch does, with case") {
  struct Case {
    const char* pattern;
    const char* name;
    bool matches;
  };
  // What fnmatch.fnmatchcase says.
  const std::vector<Case> cases = {
      {"lm_head", "lm_head", true},
      {"lm_head", "model.lm_head", false},
      {"LM_head", "lm_head", false},
      {"*lm_head", "model.lm_head", true},
      {"model.layers.0*", "model.layers.0.a.b", true},
      {"*mlp*", "model.mlp.up", true},
      {"*.mlp.*_proj", "a.mlp.up_proj", true},
      {"*.mlp.*_proj", "a.mlp.up_proj.b", false},
      {"*a*b*c", "xaxbxbxc", true},
      {"*a*b*c", "xaxcxb", false},
      {"", "", true},
      {"*", "", true},
      {"?", "", false},
      {"a.?.b", "a.1.b", true},
      {"a.?.b", "a.12.b", false},
      {"a[0-3]", "a2", true},
      {"a[0-3]", "a4", false},
      {"a[!0-3]", "a4", true},
      {"a[!0-3]", "a0", false},
      {"a[x1]*", "a1bc", true},
      {"a[]]b", "a]b", true},
      {"a[", "a[", true},
      {"a[b", "ab", false},
      {"*[0]", "layers.0", true},
      {"a[3-]", "a-", true},
      {"**b", "ab", true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.pattern, c.name);
    CHECK(MatchesWildcard(c.pattern, c.name) == c.matches);
  }
  // No number of stars makes it slow.
  std::string stars;
  for (int i = 0; i < 100; ++i) stars += "*a";
  CHECK_FALSE(MatchesWildcard(stars + "b", std::string(512, 'a')));
}

TEST_CASE("module names that patterns cannot be applied to are refused") {
  CHECK(CheckModuleName(std::string(512, 'a')).ok());
  CHECK(CheckModuleName(std::string(513, 'a')).kind() == ErrorKind::kUnsupported);
  CHECK(CheckModuleName("model.caf\xC3\xA9").kind() == ErrorKind::kUnsupported);
}

}  // namespace
}  // namespace prepack::testing
